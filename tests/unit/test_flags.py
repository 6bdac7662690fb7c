"""The flags of a program's `main`: spellings, values, defaults, and what a wrong one says."""

from __future__ import annotations

import pytest

from tlc.driver.flags import Flag, HelpAsked, UsageError, help_lines, parse, parse_until_word
from tlc.frontend.types import Elem

FLAGS = (
    Flag("epochs", Elem.I64, 10, "how often to see the data"),
    Flag("batch_size", Elem.I64, 128, ""),
    Flag("lr", Elem.F32, 2e-3, "step size"),
    Flag("shuffle", Elem.BOOL, True, ""),
    Flag("quiet", Elem.BOOL, False, "print less"),
    Flag("out", Elem.STR, "model.bin", ""),
    Flag("level", Elem.U8, 3, ""),
)


def test_defaults() -> None:
    assert parse(FLAGS, []) == {
        "epochs": 10, "batch_size": 128, "lr": 2e-3, "shuffle": True, "quiet": False, "out": "model.bin", "level": 3,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("args", "name", "value"),
    [
        (["--epochs", "3"], "epochs", 3),
        (["--epochs=3"], "epochs", 3),
        (["--epochs", "-3"], "epochs", -3),
        (["--epochs", "1_000"], "epochs", 1000),
        (["--epochs", "0x10"], "epochs", 16),
        (["--epochs", "1", "--epochs", "2"], "epochs", 2),
        (["--batch-size", "64"], "batch_size", 64),
        (["--batch_size", "64"], "batch_size", 64),
        (["--lr", "3"], "lr", 3.0),
        (["--lr", "-1e-3"], "lr", -0.0010000000474974513),
        (["--lr", "inf"], "lr", float("inf")),
        (["--no-shuffle"], "shuffle", False),
        (["--shuffle"], "shuffle", True),
        (["--shuffle=false"], "shuffle", False),
        (["--quiet"], "quiet", True),
        (["--no_quiet"], "quiet", False),
        (["--out", "a b"], "out", "a b"),
        (["--out="], "out", ""),
        (["--out=--odd"], "out", "--odd"),
        (["--level", "255"], "level", 255),
    ],
)
def test_values(args: list[str], name: str, value: object) -> None:
    assert parse(FLAGS, args)[name] == value


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--epoch", "3"], "there is no flag `--epoch`; did you mean `--epochs`?"),
        (["--zzz"], "there is no flag `--zzz`; `--help` lists those there are"),
        (["-lr", "3"], "there is no flag `-lr`; did you mean `--lr`?"),
        (["--epochs"], "`--epochs` needs a value, an integer: `--epochs VALUE`"),
        (["--epochs", "--lr", "1"], "`--epochs` needs a value, an integer: `--epochs VALUE`"),
        (["--epochs", "1.5"], "`--epochs` needs an integer, found `1.5`"),
        (["--lr", "fast"], "`--lr` needs a real number, found `fast`"),
        (["--lr", "1e39"], "`--lr` is out of range: 1e39 does not fit in `f32`"),
        (["--level", "256"], "`--level` is out of range: 256 does not fit in `u8` (0 to 255)"),
        (["--shuffle=yes"], "`--shuffle` is true or false, found `yes`"),
        (["3"], "unexpected argument `3`: everything here is a flag, `--name value`"),
        (["--quiet", "false"], "unexpected argument `false`: everything here is a flag, `--name value`"),
        (["--out", "\udcff"], "the value of `--out` is not valid UTF-8"),
    ],
)
def test_wrong_usage(args: list[str], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(FLAGS, args)
    assert str(caught.value) == message


def test_required() -> None:
    flags = (Flag("path", Elem.STR, None, ""), Flag("fast", Elem.BOOL, None, ""))
    with pytest.raises(UsageError, match="`--path` and `--fast` must be given: they have no default"):
        parse(flags, [])
    assert parse(flags, ["--path", "x", "--no-fast"]) == {"path": "x", "fast": False}


def test_a_parameter_named_no_x_goes_before_the_negation() -> None:
    flags = (Flag("cache", Elem.BOOL, True, ""), Flag("no_cache", Elem.BOOL, False, ""))
    assert parse(flags, ["--no-cache"]) == {"cache": True, "no_cache": True}


def test_words_stand_for_values() -> None:
    flags = (Flag("level", Elem.I64, 2, "how hard to try", words=(("-O0", 0), ("-O1", 1), ("-O2", 2))),)
    assert parse(flags, ["-O1"]) == {"level": 1}
    assert parse(flags, []) == {"level": 2}
    with pytest.raises(UsageError, match="there is no flag `-O3`; did you mean `-O"):
        parse(flags, ["-O3"])
    with pytest.raises(UsageError, match="`-O1` takes no value"):
        parse(flags, ["-O1=2"])
    assert help_lines(flags)[0] == "  -O0 | -O1 | -O2  how hard to try  (default -O2)"


def test_flags_end_at_the_first_word() -> None:
    assert parse_until_word(FLAGS, ["--quiet", "prog.tl", "--epochs", "x"]) == ({"quiet": True}, ["prog.tl", "--epochs", "x"])


def test_help() -> None:
    with pytest.raises(HelpAsked):
        parse(FLAGS, ["--lr", "1", "--help"])
    assert help_lines(FLAGS) == [
        "  --epochs N                how often to see the data  (default 10)",
        "  --batch-size N            (default 128)",
        "  --lr X                    step size  (default 0.002)",
        "  --shuffle | --no-shuffle  (default --shuffle)",
        "  --quiet                   print less  (default false)",
        '  --out TEXT                (default "model.bin")',
        "  --level N                 (default 3)",
        "  --help                    print this and stop",
    ]


def test_help_of_a_bool_whose_negation_is_another_flag() -> None:
    flags = (Flag("cache", Elem.BOOL, True, "keep it"), Flag("no_cache", Elem.BOOL, False, ""), Flag("fast", Elem.BOOL, None, ""))
    assert help_lines(flags)[:3] == [
        "  --cache=true|false  keep it  (default --cache)",
        "  --no-cache          (default false)",
        "  --fast | --no-fast  (required)",
    ]


def test_lines_of_help_have_no_spaces_at_the_end() -> None:
    assert help_lines((Flag("n", Elem.I64, 1, "word " * 17),))[:2] == [
        "  --n N   word word word word word word word word word word word word word word word word word",
        "          (default 1)",
    ]
