"""choice.py - selects the cases of a test program: those that the command line names, and of these
the ones of its shard.

    api_test.py TESTD RUNTIME                        all
    api_test.py TESTD RUNTIME --shard 2/3            every third one, beginning with the second
    api_test.py TESTD RUNTIME 'FA09*' lists          by a pattern, or a word in the name

All shards of N together run every case once. Checks of a whole suite belong to the first shard:
`chosen.first`.
"""
import fnmatch
import re


class Choice:
    def __init__(self, words):
        """words: the arguments after those that the program reads itself"""
        self.index, self.count, self.patterns = 1, 1, []
        words = list(words)
        while words:
            word = words.pop(0)
            if word == "--shard" or word.startswith("--shard="):
                text = word[len("--shard="):] if "=" in word else words.pop(0) if words else ""
                match = re.fullmatch(r"(\d+)/(\d+)", text)
                if not match or not 1 <= int(match[1]) <= int(match[2]):
                    raise SystemExit(f"--shard {text}: not of the form I/N with I from 1 to N; for example --shard 1/4")
                self.index, self.count = int(match[1]), int(match[2])
            else:
                self.patterns.append(word)

    @property
    def first(self):
        """Whether this run makes the checks of a whole suite."""
        return self.index == 1

    @property
    def whole(self):
        """Whether no case was named: the whole suite, or a shard of it."""
        return not self.patterns

    def named(self, name):
        return self.whole or any(p in name or fnmatch.fnmatchcase(name, p) for p in self.patterns)

    def of(self, cases, name=lambda case: case):
        """The cases that run here, in order; name() returns the command line name of a case."""
        return [case for case in cases if self.named(name(case))][self.index - 1::self.count]
