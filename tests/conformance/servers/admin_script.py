"""A script of ``mqadmin`` commands, and what they print without what differs from run to run."""

from __future__ import annotations

import dataclasses
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

from peers.frames import ask

if TYPE_CHECKING:
    from conformance.servers.processes import Serving
    from peers.admin import AdminRunner

CLUSTER = "DefaultCluster"
TOPIC, GROUP, PRODUCERS = "AdminTopic", "AdminGroup", "AdminProducers"
QUERY_CONSUMER_OFFSET = 14
GET_MAX_OFFSET = 30
PATIENCE = 60

SETTINGS = {
    "brokerIP1": "127.0.0.1",
    "brokerIP2": "127.0.0.1",
    "fileReservedTime": "876000",
    "diskMaxUsedSpaceRatio": "95",
    "diskSpaceWarningLevelRatio": "99",
    "diskSpaceCleanForciblyRatio": "99",
    "waitTimeMillsInSendQueue": "30000",
    # On by default in `orbitmq serve`.
    "enablePropertyFilter": "false",
    "recallMessageEnable": "false",
}
"""What Apache's broker is started with here, and so is the one that is compared with it."""

PLACES = {
    # Where a server listens and keeps its files is the test's own doing.
    *("bindAddress", "listenPort", "haListenPort", "namesrvAddr"),
    *("storePathRootDir", "configStorePath", "kvConfigPath"),
}
UNSET = ("rocketmqHome =", "storePathCommitLog =")
"""Settings without a value, and then without a line, unless something sets them: Apache's servers here are told."""

MEASURED = {
    # Rates, times and the disk, of ``brokerStatus``.
    *("bootTimestamp", "runtime", "commitLogDirCapacity", "commitLogDiskRatio", "commitLogDiskRatio_FOLDER"),
    *("consumeQueueDiskRatio", "earliestMessageTimeStamp"),
    *("getFoundTps", "getMissTps", "getTotalTps", "getTransferredTps", "putTps"),
    *("getMessageEntireTimeMax", "putMessageEntireTimeMax", "pageCacheLockTimeMills", "putMessageDistributeTime"),
    *("putLatency99", "putLatency999", "remainHowManyDataToFlush", "timerReadBehind", "putMessageAverageSize"),
}


@dataclasses.dataclass(slots=True)
class Script:
    """Runs the commands one by one; ``printed`` holds what each printed, by the command as it is written down."""

    server: Serving
    admin: AdminRunner
    printed: dict[str, str] = dataclasses.field(default_factory=dict)

    def run(self, *arguments: str) -> str:
        said = self.admin.run(*arguments)
        title = self.plain(" ".join(arguments))
        times = sum(done == title or done.startswith(f"{title} # ") for done in self.printed)
        self.printed[f"{title} # again {times}" if times else title] = self._tidy(arguments[0], said)
        return said

    def play(self) -> None:
        for part in (self._cluster, self._topics, self._messages, self._online, self._offline, self._changes):
            part()

    def _cluster(self) -> None:
        broker = self.server.broker_address
        self.run("clusterList")
        self.run("clusterList", "-m")
        self.run("brokerStatus", "-b", broker)
        self.run("getBrokerConfig", "-b", broker)
        self.run("getNamesrvConfig")

    def _topics(self) -> None:
        broker = self.server.broker_address
        self.run("updateTopic", "-c", CLUSTER, "-t", TOPIC, "-r", "4", "-w", "4")
        self.run("updateTopic", "-b", broker, "-t", "OtherTopic", "-r", "2", "-w", "3", "-p", "4", "-o", "true")
        self.run("updateTopic", "-b", broker, "-t", "FifoTopic", "-a", "+message.type=FIFO")
        self.run("updateTopic", "-b", broker, "-t", "BadAttribute", "-a", "+message.type=WRONG")
        self.run("updateTopic", "-b", broker, "-t", "NoAttribute", "-a", "+no.such=1")
        self.run("updateTopic", "-b", broker, "-t", "TBW102")
        self.run("updateTopic", "-b", broker, "-t", "bad topic!")
        self.run("updateTopic", "-c", "NoCluster", "-t", "Nowhere")
        self.run("topicRoute", "-t", TOPIC)
        self.run("topicRoute", "-t", TOPIC, "-l")
        self.run("topicRoute", "-t", "OtherTopic")
        self.run("topicRoute", "-t", "NoTopic")
        self.run("topicList")
        self.run("topicList", "-c")
        self.run("topicClusterList", "-t", TOPIC)

    def _messages(self) -> None:
        name = self.server.broker_name
        sent = []
        for number in range(4):
            wanted = ["-p", f"body{number}", "-k", f"key{number}", "-c", "AB"[number % 2]]
            sent.append(self.run("sendMessage", "-t", TOPIC, *wanted, "-b", name, "-i", str(number % 2)))
        self._wait_for(GET_MAX_OFFSET, 2, topic=TOPIC, queueId="1")
        unique = re.search(r"SEND_OK\s+(\w+)", sent[1])
        assert unique is not None, sent[1]
        self.run("topicStatus", "-t", TOPIC)
        self.run("topicStatus", "-t", "NoTopic")
        self.run("queryMsgByKey", "-t", TOPIC, "-k", "key1")
        self.run("queryMsgByKey", "-t", TOPIC, "-k", "nokey")
        self.run("queryMsgByUniqueKey", "-t", TOPIC, "-i", unique[1])
        said = self.run("queryMsgByOffset", "-t", TOPIC, "-b", name, "-i", "1", "-o", "0")
        id_ = re.search(r"OffsetID:\s+(\w+)", said)
        assert id_ is not None, said
        self.run("queryMsgById", "-t", TOPIC, "-i", id_[1])
        self.run("queryMsgById", "-t", TOPIC, "-i", id_[1][:16] + "00000000000FFFFF")
        self.run("printMsg", "-t", TOPIC, "-d", "true")
        self.run("printMsg", "-t", TOPIC, "-d", "true", "-s", "A")
        self.run("printMsgByQueue", "-t", TOPIC, "-a", name, "-i", "0", "-p", "true", "-f", "true", "-d", "true")
        self.run("consumeMessage", "-t", TOPIC, "-c", "10")
        self.run("consumeMessage", "-t", TOPIC, "-b", name, "-i", "1", "-o", "0", "-c", "2")
        self.run("checkMsgSendRT", "-t", "FifoTopic", "-a", "3", "-s", "16")
        self.run("sendMsgStatus", "-b", name, "-c", "2")
        self.run("queryCq", "-t", TOPIC, "-q", "0", "-i", "0", "-c", "2", "-b", self.server.broker_address)

    def _online(self) -> None:
        """With a producer and a consumer that are connected."""
        broker = self.server.broker_address
        self.run("updateSubGroup", "-c", CLUSTER, "-g", GROUP, "-s", "true", "-m", "true", "-q", "2", "-r", "3")
        self.run("getConsumerConfig", "-g", GROUP)
        self.admin.produce(PRODUCERS, TOPIC, "from the producer")
        self.admin.consume(GROUP, TOPIC, 5)
        self._wait_for(QUERY_CONSUMER_OFFSET, 3, topic=TOPIC, queueId="0", consumerGroup=GROUP)
        self._wait_for(QUERY_CONSUMER_OFFSET, 2, topic=TOPIC, queueId="1", consumerGroup=GROUP)
        self.run("consumerConnection", "-g", GROUP)
        self.run("producerConnection", "-g", PRODUCERS, "-t", TOPIC)
        self.run("producer", "-b", broker)
        self.run("consumerProgress", "-g", GROUP)
        self.run("consumerProgress", "-g", GROUP, "-s", "true")
        self.run("consumerProgress", "-g", GROUP, "-t", TOPIC)
        self.run("consumerProgress")
        self.run("consumerStatus", "-g", GROUP)
        self.run("statsAll", "-t", TOPIC)
        self.run("brokerConsumeStats", "-b", broker)
        self.run("topicList", "-c")
        self.run("queryMsgByOffset", "-t", TOPIC, "-b", self.server.broker_name, "-i", "1", "-o", "1")
        self.run("resetOffsetByTime", "-g", GROUP, "-t", TOPIC, "-s", "0")
        self.admin.stop(GROUP)
        self.admin.stop(PRODUCERS)

    def _offline(self) -> None:
        broker = self.server.broker_address
        self.run("consumerConnection", "-g", GROUP)
        self.run("producerConnection", "-g", PRODUCERS, "-t", TOPIC)
        self.run("consumerProgress", "-g", GROUP)
        self.run("resetOffsetByTime", "-g", GROUP, "-t", TOPIC, "-s", "now")
        self.run("consumerProgress", "-g", GROUP)
        self.run("resetOffsetByTime", "-g", GROUP, "-t", TOPIC, "-s", "0")
        self.run("resetOffsetByTime", "-g", GROUP, "-t", TOPIC, "-s", "0", "-b", broker, "-q", "1", "-o", "1")
        self.run("consumerProgress", "-g", GROUP)
        self.run("resetOffsetByTime", "-g", "NoGroup", "-t", TOPIC, "-s", "0")
        self.run("skipAccumulatedMessage", "-g", GROUP, "-t", TOPIC)
        self.run("updateSubGroup", "-b", broker, "-g", "OtherGroup")
        self.run("cloneGroupOffset", "-s", GROUP, "-d", "OtherGroup", "-t", TOPIC)
        self.run("brokerConsumeStats", "-b", broker)

    def _changes(self) -> None:
        broker, name = self.server.broker_address, self.server.broker_name
        self.run("updateTopicPerm", "-c", CLUSTER, "-t", TOPIC, "-p", "4")
        self.run("updateTopicPerm", "-c", CLUSTER, "-t", TOPIC, "-p", "6")
        self.run("updateOrderConf", "-t", TOPIC, "-m", "put", "-v", f"{name}:4")
        self.run("updateOrderConf", "-t", TOPIC, "-m", "get")
        self.run("updateOrderConf", "-t", TOPIC, "-m", "delete")
        self.run("updateOrderConf", "-t", TOPIC, "-m", "get")
        self.run("allocateMQ", "-t", TOPIC, "-i", "first,second")
        self.run("updateKvConfig", "-s", "space", "-k", "key", "-v", "value")
        self.run("deleteKvConfig", "-s", "space", "-k", "key")
        self.run("wipeWritePerm", "-b", name)
        self.run("topicRoute", "-t", TOPIC)
        self.run("addWritePerm", "-b", name)
        self.run("topicRoute", "-t", TOPIC)
        self.run("updateBrokerConfig", "-b", broker, "-k", "flushDelayOffsetInterval", "-v", "12345")
        self.run("updateBrokerConfig", "-c", CLUSTER, "-k", "noSuchKey", "-v", "1")
        self.run("getBrokerConfig", "-c", CLUSTER)
        self.run("cleanExpiredCQ", "-b", broker)
        self.run("cleanUnusedTopic", "-b", broker)
        self.run("deleteExpiredCommitLog", "-b", broker)
        self.run("deleteSubGroup", "-b", broker, "-g", "OtherGroup")
        self.run("deleteSubGroup", "-c", CLUSTER, "-g", GROUP, "-r", "true")
        self.run("getConsumerConfig", "-g", GROUP)
        self.run("deleteTopic", "-c", CLUSTER, "-t", "FifoTopic")
        self.run("topicRoute", "-t", "FifoTopic")
        self.run("topicList")
        self.run("brokerStatus", "-b", broker)

    def plain(self, text: str) -> str:
        """The text with names in place of addresses, ids and times."""
        port = int(self.server.broker_address.rpartition(":")[2])
        text = text.replace(self.server.broker_address, "BROKER").replace(self.server.nameserver, "NAMESERVER")
        text = text.replace(f"7F0000010000{port:04X}", "BROKER").replace(f"7F000001{port:08X}", "BROKER")
        for pattern, name in _DIFFERENT:
            text = pattern.sub(name, text)
        return text

    def _tidy(self, command: str, said: str) -> str:
        for path in re.findall(r"Message Body Path:\s+(/tmp/\S+)", said):
            Path(path).unlink(missing_ok=True)
        lines = [self.plain(" ".join(line.split())) for line in said.splitlines() if not _NOISE.match(line)]
        if command in {"getBrokerConfig", "getNamesrvConfig", "brokerStatus"}:
            lines = [_without_value(line) for line in lines if not line.startswith(UNSET)]
        if command == "producer":
            # Each tool is a client with a producer inside, and the broker may not have seen the last ones leave.
            lines = [line for line in lines if f"({PRODUCERS})" in line]
        if command in {"topicList", "statsAll", "getBrokerConfig", "brokerConsumeStats", "consumerProgress"}:
            # The order is that of a hash table, in which the order of arrival plays a part.
            lines.sort()
        return "\n".join(lines).strip("\n")

    def _wait_for(self, code: int, offset: int, **question: str) -> None:
        """Ask the broker until its answer is this offset."""
        deadline = time.monotonic() + PATIENCE
        while (told := ask(self.server.broker_address, code, question).fields.get("offset")) != str(offset):
            assert time.monotonic() < deadline, f"{question}: the offset is {told} and not {offset}"
            time.sleep(0.02)


_DIFFERENT = [
    (re.compile(pattern), name)
    for pattern, name in (
        (r"\b[0-9A-F]{32}\b", "UNIQUE"),
        (r"127\.0\.0\.1:\d+", "ADDRESS"),
        (r"\b\d+\.\d+\.\d+\.\d+\b", "IP"),
        (r"\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d([,.]\d+)?", "TIME"),
        (r"\b1\d{12}\b", "MILLIS"),
        (r"\b\d+-\d+\(", "BEHIND("),
        (r"\b\d+\.\d+(E-?\d+)?", "NUMBER"),
        (r"\brt=\d+ms", "RT"),
        (r"(?<= true )\d+$", "RT"),
        # Of statsAll: a day's messages, which are counted once in a while.
        (r"(?<=NUMBER NUMBER )\d+ \d+$", "* *"),
    )
]
# Stack traces, and the warning of a tool whose network thread is interrupted while it shuts down.
_NOISE = re.compile(
    r"\s+at |\s+\.\.\. \d+ more$|\d\d:\d\d:.* WARN NettyEventExecutor |java\.lang\.InterruptedException: null$"
)


def _without_value(line: str) -> str:
    """A setting or a figure, its value replaced where nobody can know it."""
    found = re.match(r"(\S+?) ?([:=])", line)
    if found is None:
        return line
    key, separator = found.groups()
    if key.startswith("commitLogDiskRatio_"):
        key = "commitLogDiskRatio_FOLDER"
    return f"{key} {separator} *" if key in PLACES | MEASURED else line


def read_transcript(file: Path) -> dict[str, str]:
    """What was printed, by command, as ``write_transcript`` wrote it down."""
    if not file.exists():
        return {}
    sections = re.split(r"^\$ mqadmin (.*)\n", file.read_text("utf-8"), flags=re.MULTILINE)
    return {title: body.strip("\n") for title, body in zip(sections[1::2], sections[2::2], strict=True)}


def write_transcript(file: Path, printed: dict[str, str]) -> None:
    file.write_text("\n".join(f"$ mqadmin {title}\n{body}\n" for title, body in printed.items()), "utf-8")
