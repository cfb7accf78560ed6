from orbitmq.broker import BrokerConfig
from orbitmq.broker.autoswitch.lease import Lease, boot_time


class Time:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def lease(*, fences: bool = True) -> tuple[Lease, Time]:
    time = Time()
    config = BrokerConfig(controller_heart_beat_timeout_mills=10_000, fence_without_controller=fences)
    return Lease(config, time), time


def test_a_lease_begins_when_the_request_was_sent() -> None:
    assert not lease()[0].is_valid
    one, time = lease()
    time.now = 105
    one.renew(100)
    valid = []
    for time.now in (109.9, 110.0):
        valid.append(one.is_valid)
    assert valid == [True, False]


def test_an_old_answer_does_not_shorten_a_lease() -> None:
    one, time = lease()
    one.renew(108)
    one.renew(101)
    time.now = 117
    assert one.is_valid


def test_without_fencing_a_master_goes_on() -> None:
    assert lease(fences=False)[0].is_valid


def test_the_clock_goes_on() -> None:
    assert boot_time() <= boot_time()


def test_a_lease_is_in_doubt_after_half_of_it() -> None:
    one, time = lease()
    one.renew(100)
    doubts = []
    for time.now in (104.9, 105.0, 111.0):
        doubts.append(one.is_in_doubt)
    assert doubts == [False, True, True]
