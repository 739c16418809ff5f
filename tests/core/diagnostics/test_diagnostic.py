"""How a mistake is shown: place, excerpt, caret, colours."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.checking import BASE, write
from trainlattice.diagnostics.diagnostic import Diagnostic, in_file_order, render_all, wants_color
from trainlattice.diagnostics.errors import ConfigError
from trainlattice.diagnostics.source import Mark, Source, display_path
from trainlattice.diagnostics.yaml_reader import read_string


def at(text: str, line: int, column: int, width: int = 1, order: int = 0) -> Mark:
    return Mark(Source("c.yaml", tuple(text.splitlines())), line, column, width, order)


def shown(text: str, line: int, column: int, width: int = 1, **fields) -> list[str]:
    return Diagnostic("code", "what is wrong", at(text, line, column, width), **fields).render().splitlines()


def test_a_mistake_shows_message_place_path_excerpt_caret_suggestion_and_notes():
    lines = shown("model:\n  drpout: 1", 2, 3, 6, path="model.drpout", suggestion="did you mean 'dropout'?",
                  notes=("options: dropout",))  # fmt: skip
    assert lines == [
        "error[code]: what is wrong",
        "  --> c.yaml:2:3   model.drpout",
        "   1 | model:",
        "   2 |   drpout: 1",
        "     |   ^^^^^^ did you mean 'dropout'?",
        "  options: dropout",
    ]


def test_the_first_line_has_no_line_above_it():
    assert shown("lr: 1", 1, 1, 2)[2:] == ["   1 | lr: 1", "     | ^^"]


def test_a_place_that_does_not_exist_any_more_shows_no_excerpt():
    assert shown("lr: 1", 2, 1) == ["error[code]: what is wrong", "  --> c.yaml:2:1"]


def test_line_numbers_of_five_digits_keep_the_caret_in_place():
    lines = shown("\n" * 12_344 + "ab: 1", 12_345, 1, 2)
    assert lines[2:] == ["12345 | ab: 1".rjust(14), "      | ^^".rjust(11)]


@pytest.mark.parametrize(
    ("line", "word", "cells_before"),
    [
        ("name: x", "x", 6),
        ("名前: x", "x", 6),
        ("日本語: {a: x}", "x", 12),
        ("🙂: x", "x", 4),
        ("ｆｕｌｌ: x", "x", 10),
        ("e\u0301te\u0301: x", "x", 5),
        ("ก\u0e31น: x", "x", 4),
        ("a\ufe0fb: x", "x", 4),
        ("a:\tx", "x", 3),
        ("a: [1,\t\tx]", "x", 8),
        ("a\u3000b: x", "x", 5),
        ("a\u202eb: x", "x", 5),
        ("a: 日本", "日本", 3),
    ],
    ids=["ascii", "wide key", "wide", "emoji", "full width", "combining", "Thai", "variation", "tab", "tabs",
         "wide space", "bidi", "wide value"],
)  # fmt: skip
def test_the_caret_stands_below_the_right_characters(line, word, cells_before):
    column = line.index(word) + 1
    caret = shown(line, 1, column, len(word))[-1]
    width = 4 if word == "日本" else 1
    assert caret == "     | " + " " * cells_before + "^" * width


def test_a_long_line_is_cut_around_the_place():
    line = "a: [" + "1, " * 2_000 + "oops]"
    excerpt, caret = shown(line, 1, line.index("oops") + 1, 4)[2:]
    assert len(excerpt) < 200
    assert excerpt[len("     | ") :][caret.index("^") - 7 :].startswith("oops")
    assert caret.strip(" |") == "^^^^"


def test_a_long_line_above_is_cut_too():
    assert max(map(len, shown("a: " + "x" * 5_000 + "\nb: 1", 2, 1))) < 200


def test_other_places_are_shown_with_their_line():
    mark = at("lr: 1\nlr: 2", 1, 1)
    lines = shown("lr: 1\nlr: 2", 2, 1, 2, related=(("first given here", mark),))
    assert lines[-1] == "  first given here: c.yaml:1:1   lr: 1"


def test_a_mistake_without_a_place_shows_its_path():
    found = Diagnostic("code", "wrong", Mark(Source("the configuration", ()), 1, 1), "model.lr", "use 1")
    assert found.render().splitlines() == ["error[code]: wrong", "  --> model.lr", "  use 1"]


def test_a_file_that_cannot_be_read_is_one_line():
    found = Diagnostic("tabs", "no tabs", at("\ta", 1, 1), whole_file=True)
    assert found.render() == "error[tabs]: c.yaml:1:1: no tabs"


@pytest.mark.parametrize("character", ["\x1b", "\x9b", "\x07", "\u202e", "\u2066", "\n", "\r", "\x00"])
def test_nothing_from_a_file_steers_the_terminal(character):
    text = f"a{character}[31mb"
    mark = Mark(Source(text, (f"k: {text}", f"k: {text}")), 2, 4)
    found = Diagnostic("code", text, mark, text, text, (text,), (("label", mark),))
    for diagnostic in (found, Diagnostic("code", text, mark, whole_file=True)):
        rendered = diagnostic.render()
        assert character not in rendered.replace("\n", "") if character != "\n" else "a\n[31m" not in rendered
        assert rendered.count("[31mb") >= 2


def test_mistakes_come_in_the_order_of_files_lines_and_columns():
    text = "\n".join("abc" for _ in range(12))
    marks = [
        at(text, 2, 1, order=1),
        at(text, 10, 1),
        at(text, 9, 3),
        at(text, 9, 1),
        None,
        at(text, 1, 1, order=1),
    ]
    found = in_file_order(Diagnostic("code", str(index), mark) for index, mark in enumerate(marks))
    assert [diagnostic.message for diagnostic in found] == ["3", "2", "1", "5", "0", "4"]


def test_twenty_mistakes_are_shown_and_the_others_counted():
    found = [Diagnostic("code", f"number {n}.", at("x", 1, 1)) for n in range(25)]
    text = render_all(found)
    assert text.count("error[code]") == 20
    assert text.endswith("\n\n... and 5 more")
    assert "more" not in render_all(found[:20])


def test_as_json_holds_all_that_is_shown():
    mark = at("lr: 1\nlr: 2", 2, 1, 2)
    found = Diagnostic(
        "duplicate-key", "twice", mark, "lr", "remove one", ("note",), (("first", at("lr: 1", 1, 1)),)
    )
    assert json.loads(json.dumps(found.as_json())) == {
        "code": "duplicate-key",
        "level": "error",
        "message": "twice",
        "file": "c.yaml",
        "line": 2,
        "column": 1,
        "path": "lr",
        "suggestion": "remove one",
        "notes": ["note"],
        "related": [{"label": "first", "file": "c.yaml", "line": 1, "column": 1}],
    }


def test_columns_count_characters_not_bytes():
    node, _ = read_string("日本: {🙂: x}\n", name="c.yaml")
    inner = node.entries["日本"].node
    assert inner.mark.column == 5
    assert inner.entries["🙂"].node.mark.column == 9


def test_a_path_below_the_current_directory_is_shown_relative_to_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert display_path(tmp_path / "configs" / "a.yaml") == os.path.join("configs", "a.yaml")
    assert display_path(tmp_path.parent / "b.yaml") == str(tmp_path.parent / "b.yaml")


# --- colours -----------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colours_are_for_terminals_without_no_color(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert wants_color(Terminal())
    assert not wants_color(io.StringIO())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not wants_color(Terminal())
    monkeypatch.setenv("NO_COLOR", "")
    assert wants_color(Terminal())


def test_colours_change_nothing_else():
    found = Diagnostic("code", "wrong", at("lr: 1", 1, 1, 2), "lr", "did you mean 'x'?")
    plain, coloured = found.render(), found.render(color=True)
    assert "\x1b[31m" in coloured
    for code in ("\x1b[31m", "\x1b[34m", "\x1b[1m", "\x1b[0m"):
        coloured = coloured.replace(code, "")
    assert coloured == plain
    assert "\x1b" not in plain


def test_an_error_renders_all_its_mistakes_and_its_text_has_no_colours():
    error = ConfigError(
        [Diagnostic("b", "second", at("x\ny", 2, 1)), Diagnostic("a", "first", at("x\ny", 1, 1))]
    )
    assert [line for line in str(error).splitlines() if "error[" in line] == [
        "error[a]: first",
        "error[b]: second",
    ]
    assert "\x1b" in error.render(color=True)


@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminals here")
@pytest.mark.parametrize(("no_color", "coloured"), [(None, True), ("1", False)])
def test_the_command_line_colours_mistakes_on_a_terminal_only(tmp_path: Path, no_color, coloured):
    import pty

    path = write(tmp_path, BASE + "trainer:\n  epochs: true\n")
    environment = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
    if no_color is not None:
        environment["NO_COLOR"] = no_color
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "trainlattice", "validate", str(path)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=theirs, timeout=60)
    os.close(theirs)
    on_terminal = os.read(ours, 65_536).decode()
    os.close(ours)
    assert done.returncode == 2
    assert "expected an integer, got the boolean true" in on_terminal
    assert ("\x1b[" in on_terminal) is coloured
    piped = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert "expected an integer" in piped.stderr
    assert "\x1b" not in piped.stderr
