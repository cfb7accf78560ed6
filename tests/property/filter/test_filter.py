"""Expressions of every shape: no text makes the compiler fail in its own way, no message makes a filter raise."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.filter import (
    FilterError,
    FilterEvaluationError,
    FilterSyntaxError,
    bloom_filter,
    compile_sql,
    compile_subscription,
    parse_tags,
)
from orbitmq.protocol.java import tags_code
from orbitmq.protocol.message.properties import encode, parse

# Machines that run the tests are busy; how long an example takes says nothing.
unhurried = settings(deadline=None)

Properties = dict[str, str]
Outcome = bool | str | None

names = st.sampled_from(["a", "b", "c", "TAGS"])
ints = st.integers(-(2**31) + 1, 2**31 - 1)
longs = st.integers(-(2**63) + 1, 2**63 - 1)
doubles = st.floats(min_value=5e-324, allow_infinity=False, allow_nan=False)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6) | st.sampled_from(["x", "5", "true", "it's"])
numbers = ints.map(str) | longs.map(str) | doubles.map(str) | doubles.map("-{}".format)
quoted = texts.map(lambda text: "'" + text.replace("'", "''") + "'")
truths = st.sampled_from(["TRUE", "FALSE"])
maybe_not = st.sampled_from(["", "NOT "])
orders = st.sampled_from([">", ">=", "<", "<="])
searches = st.sampled_from(["CONTAINS", "STARTSWITH", "ENDSWITH"])

predicates = st.one_of(
    st.builds("{} {} {}".format, names, st.sampled_from(["=", "<>"]), numbers | quoted | names | truths),
    st.builds("{} {} {}".format, names | numbers, orders, names | numbers),
    st.builds("{} IS {}NULL".format, names, maybe_not),
    st.builds("{} {}IN ({})".format, names, maybe_not, st.lists(quoted, min_size=1, max_size=4).map(", ".join)),
    st.builds("{} {}{} {}".format, names, maybe_not, searches, quoted),
    st.builds("{} {}BETWEEN {} AND {}".format, names, maybe_not, names | numbers, names),
    truths | st.just("NULL") | names,
)
expressions = st.recursive(
    predicates,
    lambda inner: st.one_of(
        st.builds("({}) {} ({})".format, inner, st.sampled_from(["AND", "OR"]), inner),
        st.builds("(NOT ({})) {} (NOT ({}))".format, inner, st.sampled_from(["=", "<>"]), inner),
        st.builds("NOT ({})".format, inner),
        st.builds("({}) IS NULL".format, inner),
    ),
    max_leaves=6,
)

odd_values = st.sampled_from(["NaN", "-0.0", "TRUE", "0x1p3"])
values = texts | ints.map(str) | longs.map(str) | st.floats().map(str) | odd_values
messages = st.dictionaries(names, values, max_size=4)

WORDS = "a b NULL TRUE NOT AND OR BETWEEN IN IS CONTAINS ( ) , = <> > >= < <= + - 5 5L 0.5 1e5 'x' ' -- /* */ # 键"
words = st.sampled_from([*WORDS.split(), "\n", "\x00"])
soups = st.builds(str.join, st.sampled_from(["", " "]), st.lists(words, max_size=14)) | st.text(max_size=30)

pieces = st.sampled_from([b"\x01", b"\x02", b"a", b"b", b"TAGS", b"5", b"\xff", b"\xed\xa0\x80", "键".encode()])
raws = st.lists(pieces, max_size=16).map(b"".join) | st.binary(max_size=40)


def as_raw(message: Properties) -> bytes:
    return encode({name: value.replace("\x02", "") for name, value in message.items()})


def outcome(expression: str, properties: Properties) -> Outcome:
    """True, false, unknown or a failed comparison."""
    try:
        return compile_sql(expression).evaluate(properties)
    except FilterEvaluationError:
        return "failed"


def joined(first: Outcome, second: Outcome, *, dominant: bool) -> Outcome:
    """What AND (False dominates) or OR (True does) makes of two outcomes."""
    if first in {dominant, "failed"}:
        return first
    if second in {dominant, "failed"}:
        return second
    return None if None in {first, second} else not dominant


@unhurried
@given(soups, messages, raws)
def test_no_text_makes_the_compiler_raise_another_error_nor_the_filter_any(
    text: str, message: Properties, raw: bytes
) -> None:
    try:
        selector = compile_sql(text)
    except FilterSyntaxError:
        return
    assert selector.matches(message) in {True, False}
    assert selector.matches_raw(raw) in {True, False}


@unhurried
@given(st.text(max_size=5) | st.sampled_from(["TAG", "SQL92", ""]), soups, raws, longs)
def test_no_subscription_makes_its_compiler_raise_another_error(
    kind: str, text: str, raw: bytes, code: int
) -> None:
    try:
        compiled = compile_subscription(kind, text)
    except FilterError:
        return
    assert compiled.matches_properties(raw) in {True, False}
    if compiled.matches_code is not None:
        assert compiled.matches_code(code) in {True, False}


@unhurried
@given(expressions, raws | messages.map(as_raw))
def test_raw_properties_match_as_parsed_ones(expression: str, raw: bytes) -> None:
    selector = compile_sql(expression)
    assert selector.matches_raw(raw) is selector.matches(parse(raw))


@unhurried
@given(expressions, expressions, messages)
def test_not_and_and_or_obey_de_morgan_in_three_values(left: str, right: str, message: Properties) -> None:
    not_left, not_right = f"NOT ({left})", f"NOT ({right})"
    assert outcome(f"NOT (({left}) AND ({right}))", message) == outcome(f"{not_left} OR {not_right}", message)
    assert outcome(f"NOT (({left}) OR ({right}))", message) == outcome(f"{not_left} AND {not_right}", message)
    assert outcome(f"NOT NOT ({left})", message) == outcome(left, message)


@unhurried
@given(expressions, expressions, messages)
def test_and_and_or_follow_the_truth_table(left: str, right: str, message: Properties) -> None:
    first, second = outcome(left, message), outcome(right, message)
    assert outcome(f"({left}) AND ({right})", message) == joined(first, second, dominant=False)
    assert outcome(f"({left}) OR ({right})", message) == joined(first, second, dominant=True)


@unhurried
@given(expressions, expressions, expressions, messages)
def test_chains_and_parentheses_group_alike(one: str, two: str, three: str, message: Properties) -> None:
    for word in ("AND", "OR"):
        chain = outcome(f"({one}) {word} ({two}) {word} ({three})", message)
        assert chain == outcome(f"(({one}) {word} ({two})) {word} ({three})", message)
        assert chain == outcome(f"({one}) {word} (({two}) {word} ({three}))", message)
    mixed = outcome(f"({one}) OR ({two}) AND ({three})", message)
    assert mixed == outcome(f"({one}) OR (({two}) AND ({three}))", message)


@unhurried
@given(expressions, messages)
def test_what_is_neutral_changes_nothing(expression: str, message: Properties) -> None:
    plain = outcome(expression, message)
    assert outcome(f"({expression}) AND TRUE", message) == plain
    assert outcome(f"({expression}) OR FALSE", message) == plain
    assert outcome(f"(({expression}))", message) == plain
    assert outcome(f" /* a */({expression}) -- b\n", message) == plain
    assert outcome(f"({expression}) and_so_on", message) == plain


@unhurried
@given(names, st.lists(ints, min_size=2, max_size=2).map(sorted), messages)
def test_between_is_two_comparisons(name: str, bounds: list[int], message: Properties) -> None:
    low, high = bounds
    inside, outside = f"{name} >= {low} AND {name} <= {high}", f"{name} < {low} OR {name} > {high}"
    assert outcome(f"{name} BETWEEN {low} AND {high}", message) == outcome(inside, message)
    assert outcome(f"{name} NOT BETWEEN {low} AND {high}", message) == outcome(outside, message)


@unhurried
@given(names, st.lists(quoted, min_size=1, max_size=5), messages)
def test_in_is_a_chain_of_equations(name: str, listed: list[str], message: Properties) -> None:
    chain = " OR ".join([f"{name} = {text}" for text in listed])
    assert outcome(f"{name} IN ({', '.join(listed)})", message) == outcome(chain, message)
    assert outcome(f"{name} NOT IN ({', '.join(listed)})", message) == outcome(f"NOT ({chain})", message)


@unhurried
@given(longs, longs)
def test_integers_compare_as_numbers_within_their_range(value: int, literal: int) -> None:
    message = {"a": str(value)}
    fits = not -(2**31) < literal < 2**31 or -(2**31) <= value < 2**31
    assert outcome(f"a > {literal}", message) == (value > literal if fits else "failed")
    assert outcome(f"{literal} >= a", message) == (value <= literal if fits else "failed")
    assert outcome(f"a = {literal}", message) == (value == literal if fits else "failed")


@unhurried
@given(st.lists(st.text(st.characters(exclude_characters="|", exclude_categories=["Cs"]), max_size=8), max_size=6))
def test_every_tag_of_an_expression_passes_both_checks(tags: list[str]) -> None:
    expression = parse_tags(" || ".join(["first", *tags]))
    assert expression.tags[0] == "first"
    check = expression.code_check()
    for tag in expression.tags:
        assert check(tags_code(tag))
        assert expression.matches_tag(tag)
        assert expression.properties_check()(b"TAGS\x01" + tag.encode() + b"\x02") or "\x02" in tag
    for tag in set(tags) - set(expression.tags):
        assert not expression.matches_tag(tag)


@unhurried
@given(st.integers(1, 99), st.integers(1, 300), st.lists(st.tuples(texts, texts), max_size=8))
def test_a_bloom_filter_never_denies_what_it_was_told(
    percent: int, count: int, keys: list[tuple[str, str]]
) -> None:
    bloom = bloom_filter(percent, count)
    masks = [bloom.mask(bloom.positions(group, topic)) for group, topic in keys]
    bitmap = bloom.bitmap(masks)
    assert len(bitmap) * 8 == bloom.bit_count
    assert all(bloom.may_match(bitmap, mask) for mask in masks)
