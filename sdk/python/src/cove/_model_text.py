"""A result as text for a language model, within a number of characters.

The outcome and the hint are always there, because the next step depends on them. Values, exception,
stderr and stdout share the rest: a part that needs less than its share leaves the difference to the
others. Output keeps its beginning and its end. A traceback keeps its last line and the frames of
the user's own code, the last frames first.
"""
from __future__ import annotations

import re
from typing import TYPE_CHECKING, List, Tuple

if TYPE_CHECKING:
    from .result import Result

HINT_MAX = 700
PIECE_MIN = 20  # a smaller piece of a part says nothing
LIBRARY = re.compile(r"/(?:usr|lib|opt)/|<frozen |node:|/site-packages/|/dist-packages/")
OUTCOMES = {
    "success": "The program succeeded.",
    "error": "The program failed.",
    "timeout": "The program was stopped because it ran too long.",
    "out_of_memory": "The program was stopped because it used too much memory.",
    "killed": "The program was ended before it finished.",
    "lost": "The sandbox was lost before the program finished.",
}


def elided(text: str, space: int) -> str:
    """The beginning and the end of the text, with a mark between them, in at most `space`
    characters."""
    if len(text) <= space:
        return text
    mark = f"\n[... {len(text) - space} or more characters left out ...]\n"
    kept = space - len(mark)
    if kept < 2:
        return text[:max(space, 0)]
    head = kept // 2
    return text[:head] + mark + text[len(text) - (kept - head):]


def shortened(text: str, space: int) -> str:
    return text if len(text) <= space else text[:max(space - 3, 0)] + "..."


def frames_of(lines: List[str]) -> List[Tuple[bool, List[str]]]:
    """The parts of a traceback: lines that belong together, and whether they are of a library."""
    parts: List[Tuple[bool, List[str]]] = []
    for line in lines:
        begins = line.startswith(("  File ", "    at ")) or not line.startswith(" ")
        if begins or not parts:
            parts.append((line.startswith(("  File ", "    at ")) and LIBRARY.search(line) is not None, []))
        parts[-1][1].append(line)
    return parts


def trimmed_traceback(traceback: str, space: int) -> str:
    """The traceback in at most `space` characters: its last line, then the user's own frames, the
    last ones first, then those of libraries."""
    if len(traceback) <= space:
        return traceback
    parts = frames_of(traceback.rstrip("\n").split("\n"))
    mark = "  [... frames left out ...]"
    left = space
    kept = set()
    order = sorted(range(len(parts)), key=lambda i: (i != len(parts) - 1, parts[i][0], -i))
    for i in order:
        needs = sum(len(line) + 1 for line in parts[i][1]) + len(mark) + 1
        if needs > left:
            continue
        left -= needs
        kept.add(i)
    if len(parts) - 1 not in kept:  # the message alone is too long
        return elided("\n".join(parts[-1][1]), space)
    lines: List[str] = []
    for i, (_, part) in enumerate(parts):
        if i in kept:
            lines += part
        elif not lines or lines[-1] != mark:
            lines.append(mark)
    return "\n".join(lines)


def outcome_sentence(result: Result) -> str:
    text = OUTCOMES.get(result.outcome, f"The outcome is {result.outcome}.")
    if result.outcome == "error" and result.exit_code is not None:
        text = f"The program failed with exit code {result.exit_code}."
    elif result.outcome == "error" and result.signal is not None:
        text = f"The program was ended by signal {result.signal}."
    if result.error is not None:
        text += f" {result.error.message[:1].upper()}{result.error.message[1:].rstrip('.')}."
    return text


def displayed(result: Result) -> str:
    """The displayed values, without the value of the last expression if that is text."""
    lines = []
    for event in result.results:
        text = event.data.get("text/plain")
        pictures = [kind for kind in event.data if not kind.startswith("text/")]
        if event.type == "display" and isinstance(text, str):
            lines.append(text)
        lines += [f"[{kind}]" for kind in pictures]
    return "\n".join(lines)


def shared(needs: List[int], space: int) -> List[int]:
    """Divides the space among the parts: equal shares, and what a part does not need goes to the
    others."""
    shares = [0] * len(needs)
    waiting = sorted(range(len(needs)), key=lambda i: needs[i])
    for n, i in enumerate(waiting):
        shares[i] = min(needs[i], space // (len(waiting) - n))
        space -= shares[i]
    return shares


def model_text(result: Result, max_chars: int) -> str:
    if max_chars < 1:
        raise ValueError(f"max_chars is {max_chars}: must be at least 1")
    first = shortened(outcome_sentence(result), max_chars // 2 if result.hint else max_chars)
    hint = shortened(f"Hint: {result.hint}", min(HINT_MAX, max_chars - len(first) - 1)) if result.hint else ""
    parts = [("stdout", result.stdout.rstrip("\n")), ("stderr", result.stderr.rstrip("\n")), ("displayed", displayed(result)), ("value", result.text or ""),
             ("exception", (result.exception.traceback.rstrip("\n") or str(result.exception)) if result.exception else ""),
             ("files", "\n".join(f"{path} ({len(data)} bytes)" for path, data in result.files.items())),
             ("note", "some output was dropped, because it was over its limit" if result.truncated else "")]
    parts = [(name, text) for name, text in parts if text]
    space = max_chars - len(first) - (len(hint) + 1 if hint else 0) - sum(len(name) + 3 for name, _ in parts)
    pieces = [first]
    for (name, text), share in zip(parts, shared([len(text) for _, text in parts], max(space, 0))):
        if share == len(text) or share >= PIECE_MIN:
            pieces.append(f"{name}:\n{trimmed_traceback(text, share) if name == 'exception' else elided(text, share)}")
    if hint:
        pieces.append(hint)
    return "\n".join(pieces)[:max_chars]
