"""Patterns of topic names from settings: what they match, and what no pattern can do to the broker."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.platform.settings import ConfigError
from orbitmq.store import StoreConfig
from orbitmq.store.retention import archive_barrier as module
from orbitmq.store.retention.retention import Retention
from orbitmq.store.retention.topic_pattern import MAX_PATTERN_LENGTH, TopicPattern
from support.store.aged_store import HOUR, PER_FILE, SIZE, aged
from support.store.stores import send

LONGEST_NAME = "a" * 127
BACKTRACKING = ["(a+)+b", "(a|aa)+b", "(a|a)*b", "(.*a){20}b", "(?:a?){100}a{100}b", "(a*)*b", "([a-z]+)*[0-9]"]

atoms = st.sampled_from(["a", "b", "A", "-", "_", "%", "0", ".", "[ab]", "[^a]", "[a-z0-9]", r"\d", r"\w", r"\."])
patterns = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=4).map("".join),
        st.tuples(inner, inner).map(lambda two: f"(?:{two[0]}|{two[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{1,2}", "{2}", "*?"])).map(
            lambda part: f"({part[0]}){part[1]}"
        ),
    ),
    max_leaves=6,
)


@pytest.mark.parametrize("pattern", BACKTRACKING)
def test_a_pattern_that_would_backtrack_for_ever_is_matched_at_once(pattern: str) -> None:
    assert not TopicPattern(pattern).matches(LONGEST_NAME)


def test_retention_runs_with_a_pattern_that_would_backtrack_for_ever() -> None:
    it = aged(1, archive_group="ARCHIVERS", archive_topics="(a+)+b")
    send(it.store, 3 * PER_FILE, size=SIZE, topic=LONGEST_NAME)
    it.store.flush()
    it.clock.advance(73 * HOUR)
    retention = Retention(it.store)
    retention.request()
    assert len(retention.run().log_files) == 3
    it.store.close()


def test_an_expensive_pattern_is_matched_with_few_topics_in_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    it = aged(1, archive_group="ARCHIVERS", archive_topics="[ab]*a[ab]{200}")
    for number in range(30):
        send(it.store, 1, size=SIZE, topic=f"topic-{number}")
    it.store.flush()
    it.clock.advance(73 * HOUR)
    archived = Retention(it.store).archived
    matched: list[str] = []

    def is_own(topic: str) -> bool:
        matched.append(topic)
        return False

    monkeypatch.setattr(archived, "is_own", is_own)
    monkeypatch.setattr(module, "QUEUES_PER_ROUND", 1000)
    assert not archived.reaches(1)
    assert 0 < len(matched) < 30
    while not archived.reaches(1):
        pass
    assert len(set(matched)) == 31
    it.store.close()


@given(patterns, st.text("abA-_%0.x", max_size=12))
def test_plain_patterns_mean_what_they_mean_to_python(pattern: str, topic: str) -> None:
    assert TopicPattern(pattern).matches(topic) == (re.fullmatch(pattern, topic) is not None)


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(", r"archiveTopics=\( is no regular expression: missing \)"),
        ("a(?=b)", "is no regular expression"),
        (r"(a)\1", "is no regular expression"),
        ("a" * (MAX_PATTERN_LENGTH + 1), "is 4097 characters long; at most 4096 are allowed"),
        ("[a-z]{600}[0-9]{600}", "is too complex"),
        ("(x{1000}){1000}", "is no regular expression"),
        ("\ud800", "is no regular expression: it is not text"),
    ],
)
def test_a_pattern_that_is_not_allowed_is_refused_with_the_setting(pattern: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        StoreConfig(archive_topics=pattern)


def test_a_topic_whose_name_is_no_text_is_matched_too() -> None:
    assert TopicPattern(".*").matches("a\udcff")
