import pytest

from orbitmq.broker import BrokerConfig, BrokerSettings
from orbitmq.platform.settings import ConfigError, from_settings
from orbitmq.store.config import StoreConfig

CONTROLLED = {"enableControllerMode": "true", "controllerAddr": "10.0.0.1:9878; 10.0.0.2:9878;"}


def settings(**more: str) -> BrokerSettings:
    texts = {**CONTROLLED, **more}
    return BrokerSettings(from_settings(BrokerConfig, texts)[0], from_settings(StoreConfig, texts)[0])


def test_role_and_id_of_the_file_are_ignored_in_controller_mode() -> None:
    found = settings(brokerRole="SLAVE", brokerId="0")
    assert found.broker.controllers == ("10.0.0.1:9878", "10.0.0.2:9878")


@pytest.mark.parametrize(
    ("key", "text", "named"),
    [
        ("controllerAddr", "", "controllerAddr is empty"),
        ("controllerAddr", "here", "controllerAddr has 'here'"),
        ("enableSlaveActingMaster", "true", "a broker has one of them"),
        ("haMasterAddress", "10.0.0.3:10912", "the controller names the master"),
        ("controllerHeartBeatTimeoutMills", "0", "controllerHeartBeatTimeoutMills"),
        ("haTlsEnable", "true", "haTlsEnable"),
    ],
)
def test_settings_that_contradict_controller_mode_are_refused(key: str, text: str, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        settings(**{key: text})
