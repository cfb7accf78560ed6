"""Version numbers as they travel in headers: the ordinal of a release in RocketMQ's list of them."""

from __future__ import annotations

_HIGHEST = 612
"""The end of the list; peers treat every greater number as this one."""

_BEFORE_3_0_1 = (
    *("SNAPSHOT", "ALPHA1", "BETA1", "BETA2", "BETA3", "BETA4", "BETA5", "BETA6_SNAPSHOT"),
    *("BETA6", "BETA7_SNAPSHOT", "BETA7", "BETA8_SNAPSHOT", "BETA8", "BETA9_SNAPSHOT", "BETA9", "FINAL"),
)


def version_ordinal(major: int, minor: int, patch: int, *, snapshot: bool = False) -> int:
    """The number of a release from 4.0.0 on: a snapshot and a release for each patch level."""
    if not (major >= 4 and 0 <= minor <= 9 and 0 <= patch <= 9):
        raise ValueError(f"{major}.{minor}.{patch} has no version number")
    return 213 + 200 * (major - 4) + 20 * minor + 2 * patch - snapshot


def version_name(ordinal: int) -> str:
    """The name that the tools print for a version number, such as ``V5_5_0``.

    A peer that sends none has number 0, ``V3_0_0_SNAPSHOT``.
    """
    if ordinal >= _HIGHEST:
        return "HIGHER_VERSION"
    if ordinal < 0:
        raise ValueError(f"{ordinal} is not a version number")
    if ordinal < 16:
        return f"V3_0_0_{_BEFORE_3_0_1[ordinal]}"
    step = ordinal // 2
    # 3.0 went up to 3.0.15; 3.3 to 3.9 have no patch level 0.
    if ordinal >= 212:
        major, minor, patch = 4 + (step - 106) // 100, (step - 106) // 10 % 10, (step - 106) % 10
    elif ordinal >= 86:
        major, minor, patch = 3, 3 + (step - 43) // 9, 1 + (step - 43) % 9
    elif ordinal >= 46:
        major, minor, patch = 3, 1 + (step - 23) // 10, (step - 23) % 10
    else:
        major, minor, patch = 3, 0, step - 7
    return f"V{major}_{minor}_{patch}" + ("" if ordinal & 1 else "_SNAPSHOT")


CURRENT_VERSION = version_ordinal(5, 5, 0)
"""What OrbitMQ says it is: peers switch abilities on by this number."""
