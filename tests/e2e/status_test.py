"""Exit statuses: the same in every command that runs a program or code."""
from served import Served

HUNGRY = "x = b'1' * (1 << 30)"


class Statuses(Served):
    def setUp(self):
        super().setUp()
        self.box = self.cove("sandbox", "create", "-q", "--memory", "128M").out.strip()
        self.cove("context", "create", self.box)

    def programs(self):
        """Each command that runs a program, without and with the flags that it takes before."""
        for words in (["run", "--memory", "128M"], ["execute", "--memory", "128M"]):
            yield lambda flags, program, words=words: (*words, *flags, "--", *program)
        for verb in ("exec", "shell"):
            yield lambda flags, program, verb=verb: (verb, *flags, self.box, "--", *program)

    def test_of_programs(self):
        for flags, program, status in [((), ("sh", "-c", "exit 3"), 3), ((), ("sh", "-c", "kill -TERM $$"), 143),
                                       ((), ("no-such-program",), 127), ((), ("/etc/passwd",), 126),
                                       (("--timeout", "300ms"), ("sleep", "60"), 124), (("--no-such-flag",), ("true",), 2)]:
            for command in self.programs():
                self.cove(*command(flags, program), code=status)

    def test_of_code(self):
        for words in (["run", "--memory", "128M"], ["execute", "--memory", "128M"], ["exec", self.box], ["context", "exec", self.box]):
            for code, status in (("1 / 0", 1), ("import sys; sys.exit(3)", 3), (HUNGRY, 123)):
                self.cove(*words, "-c", code, code=status)

    def test_of_refusals(self):
        nothing = "sb" + "a" * 20
        for status, words in ((125, ("exec", nothing, "--", "true")), (125, ("shell", nothing)), (125, ("rm", nothing)),
                              (125, ("template", "show", "none")), (125, ("logs", self.box, "ex" + "a" * 20)), (2, ("logs",)),
                              (2, ("cp", "a", "b")), (2, ("files",)), (2, ("ls", "x")), (2, ("rm",)), (2, ("shell",))):
            self.cove(*words, code=status)
