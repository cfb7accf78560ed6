"""Delay levels: SCHEDULE_TOPIC_XXXX and its delivery service."""
