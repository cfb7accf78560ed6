"""Archived messages sent again, at a rate or at their own pace."""
