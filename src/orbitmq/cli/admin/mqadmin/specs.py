"""The 96 commands of Apache's ``mqadmin`` 5.5.0: names, options, and the module that has each.

An option is ``short/long``; ``*`` is required, ``!`` has no value, ``{… …}*`` is exactly one of a group. ``-n`` and
``-h`` belong to all commands.
"""

from __future__ import annotations

import dataclasses
import re

_TABLE = """
topics updateTopic UpdateTopicSubCommand | {b/brokerAddr c/clusterName}* a/attributes t/topic* r/readQueueNums w/writeQueueNums p/perm o/order u/unit s/hasUnitSub | Update or create topic.
topics deleteTopic DeleteTopicSubCommand | t/topic* c/clusterName* | Delete topic from broker and NameServer.
topics updateTopicPerm UpdateTopicPermSubCommand | b/brokerAddr c/clusterName t/topic* p/perm* | Update topic perm.
topics updateTopicList UpdateTopicListSubCommand | {b/brokerAddr c/clusterName}* f/filename* | Create or update topics in batch.
topics topicList TopicListSubCommand | c/clusterModel! | Fetch all topic list from name server.
topics topicRoute TopicRouteSubCommand | t/topic* l/list! | Examine topic route info.
topics topicStatus TopicStatusSubCommand | t/topic* c/cluster | Examine topic Status info.
topics topicClusterList TopicClusterSubCommand | t/topic* | Get cluster info for topic.
topics updateOrderConf UpdateOrderConfCommand | t/topic* v/orderConf m/method* | Create or update or delete order conf.
topics allocateMQ AllocateMQSubCommand | t/topic* i/ipList* | Allocate MQ.
topics statsAll StatsAllSubCommand | a/activeTopic! t/topic | Topic and Consumer tps stats.
- updateStaticTopic UpdateStaticTopicSubCommand | c/clusters b/brokers t/topic* qn/totalQueueNum* mf/mapFile fr/forceReplace | Update or create static topic, which has fixed number of queues.
- remappingStaticTopic RemappingStaticTopicSubCommand | c/clusters b/brokers t/topic* mf/mapFile fr/forceReplace | Remapping static topic.
groups updateSubGroup UpdateSubGroupSubCommand | b/brokerAddr c/clusterName g/groupName* s/consumeEnable m/consumeFromMinEnable d/consumeBroadcastEnable o/consumeMessageOrderly q/retryQueueNums r/retryMaxTimes p/groupRetryPolicy i/brokerId w/whichBrokerWhenConsumeSlowly a/notifyConsumerIdsChanged /attributes | Update or create subscription group.
groups updateSubGroupList UpdateSubGroupListSubCommand | {b/brokerAddr c/clusterName}* f/filename* | Update or create subscription group in batch.
groups deleteSubGroup DeleteSubscriptionGroupCommand | b/brokerAddr c/clusterName g/groupName* r/removeOffset | Delete subscription group from broker.
groups getConsumerConfig GetConsumerConfigSubCommand | g/groupName* | Get consumer config by subscription group name.
groups setConsumeMode SetConsumeModeSubCommand | b/brokerAddr c/clusterName t/topicName* g/groupName* m/mode* q/popShareQueueNum | Set consume message mode. pull/pop etc.
groups consumerProgress ConsumerProgressSubCommand | g/groupName t/topicName s/showClientIP c/cluster | Query consumers's progress, speed.
clients consumerStatus ConsumerStatusSubCommand | g/consumerGroup* i/clientId b/brokerAddr s/jstack! | Query consumer's internal data structure.
clients consumerConnection ConsumerConnectionSubCommand | g/consumerGroup* b/brokerAddr | Query consumer's socket connection, client version and subscription.
clients producerConnection ProducerConnectionSubCommand | g/producerGroup* t/topic* | Query producer's socket connection and client version.
clients producer ProducerSubCommand | b/broker* | Query producer's instances, connection, status, etc.
monitoring startMonitoring StartMonitoringSubCommand | | Start Monitoring.
offsets resetOffsetByTime ResetOffsetByTimeCommand | g/group* t/topic* s/timestamp* f/force b/broker q/queue o/offset c/cluster | Reset consumer offset by timestamp(without client restart).
offsets skipAccumulatedMessage SkipAccumulationSubCommand | g/group* t/topic* f/force c/cluster | Skip all messages that are accumulated (not consumed) currently.
offsets cloneGroupOffset CloneGroupOffsetCommand | s/srcGroup* d/destGroup* t/topic* o/offline | Clone offset from other group.
brokers clusterList ClusterListSubCommand | m/moreStats! i/interval c/clusterName | List cluster infos.
brokers brokerStatus BrokerStatusSubCommand | {b/brokerAddr c/clusterName}* | Fetch broker runtime status data.
brokers getBrokerConfig GetBrokerConfigCommand | {b/brokerAddr c/clusterName}* | Get broker config by cluster or special broker.
brokers updateBrokerConfig UpdateBrokerConfigSubCommand | b/brokerAddr c/clusterName a/updateAllBroker k/key* v/value* | Update broker's config.
brokers brokerConsumeStats BrokerConsumeStatsSubCommand | b/brokerAddr* t/timeoutMillis l/level o/order | Fetch broker consume stats data.
brokers cleanExpiredCQ CleanExpiredCQSubCommand | b/brokerAddr c/cluster | Clean expired ConsumeQueue on broker.
brokers cleanUnusedTopic CleanUnusedTopicCommand | b/brokerAddr c/cluster | Clean unused topic on broker.
brokers deleteExpiredCommitLog DeleteExpiredCommitLogSubCommand | b/brokerAddr c/cluster | Delete expired CommitLog files.
brokers haStatus HAStatusSubCommand | {c/clusterName b/brokerAddr}* i/interval | Fetch ha runtime status data.
brokers getBrokerEpoch GetBrokerEpochSubCommand | {c/clusterName b/brokerName}* i/interval | Fetch broker epoch entries.
brokers resetMasterFlushOffset ResetMasterFlushOffsetSubCommand | b/brokerAddr o/offset | Reset master flush offset in slave.
brokers wipeWritePerm WipeWritePermSubCommand | b/brokerName* | Wipe write perm of broker in all name server you defined in the -n param.
brokers addWritePerm AddWritePermSubCommand | b/brokerName* | Add write perm of broker in all name server you defined in the -n param.
brokers setCommitLogReadAheadMode CommitLogSetReadAheadSubCommand | {b/brokerAddr c/clusterName}* m/commitLogReadAheadMode* | Set read ahead mode for all commitlog files.
brokers getColdDataFlowCtrInfo GetColdDataFlowCtrInfoSubCommand | {b/brokerAddr c/clusterName}* | Get cold data flow ctr info.
brokers updateColdDataFlowCtrGroupConfig UpdateColdDataFlowCtrGroupConfigSubCommand | {b/brokerAddr c/clusterName}* g/consumerGroup* v/threshold* | Add or update cold data flow ctr group config.
brokers removeColdDataFlowCtrGroupConfig RemoveColdDataFlowCtrGroupConfigSubCommand | {b/brokerAddr c/clusterName}* g/consumerGroup* | Remove consumer from cold ctr config.
brokers switchTimerEngine SwitchTimerEngineSubCommand | {b/brokerAddr c/clusterName}* e/engineType* | Switch the engine of timer message.
brokers addBroker AddBrokerSubCommand | c/brokerContainerAddr* b/brokerConfigPath* | Add a broker to specified container.
brokers removeBroker RemoveBrokerSubCommand | c/brokerContainerAddr* b/brokerIdentity* | Remove a broker from specified container.
brokers checkRocksdbCqWriteProgress CheckRocksdbCqWriteProgressCommand | c/cluster* t/topic cf/checkFrom | Check if rocksdb cq is same as file cq.
brokers exportPopRecord ExportPopRecordCommand | c/clusterName b/brokerAddr d/dryRun | Export pop consumer record.
brokers rocksDBConfigToJson RocksDBConfigToJsonCommand | t/configType p/configPath e/exportFile j/jsonEnable c/cluster b/brokerAddr | Convert RocksDB kv config to json.
namesrv getNamesrvConfig GetNamesrvConfigCommand | | Get configs of name server.
namesrv updateNamesrvConfig UpdateNamesrvConfigCommand | k/key* v/value* | Update configs of name server.
namesrv updateKvConfig UpdateKvConfigCommand | s/namespace* k/key* v/value* | Create or update KV config.
namesrv deleteKvConfig DeleteKvConfigCommand | s/namespace* k/key* | Delete KV config.
queries queryMsgById QueryMsgByIdSubCommand | t/topic* i/msgId* g/consumerGroup d/clientId s/sendMessage u/unitName f/bodyFormat c/cluster | Query Message by Id.
queries queryMsgByKey QueryMsgByKeySubCommand | t/topic* k/msgKey* b/beginTimestamp e/endTimestamp m/maxNum c/cluster p/keyType l/lastKey | Query Message by Key.
queries queryMsgByUniqueKey QueryMsgByUniqueKeySubCommand | i/msgId* g/consumerGroup d/clientId t/topic* a/showAll! c/cluster s/startTime e/endTime | Query Message by Unique key.
queries queryMsgByOffset QueryMsgByOffsetSubCommand | t/topic* b/brokerName* i/queueId* o/offset* f/bodyFormat r/routeTopic | Query Message by offset.
queries queryMsgTraceById QueryMsgTraceByIdSubCommand | i/msgId* t/traceTopic b/beginTimestamp e/endTimestamp c/maxNum | Query a message trace.
queries queryCq QueryConsumeQueueCommand | t/topic* q/queue* i/index* c/count b/broker g/consumer | Query cq command.
messages printMsg PrintMessageSubCommand | t/topic* c/charsetName s/subExpression b/beginTimestamp e/endTimestamp d/printBody l/lmqParentTopic | Print Message Detail.
messages printMsgByQueue PrintMessageByQueueCommand | t/topic* a/brokerName* i/queueId* c/charsetName s/subExpression b/beginTimestamp e/endTimestamp p/printMsg d/printBody f/calculate | Print Message Detail by queueId.
messages consumeMessage ConsumeMessageCommand | t/topic* b/brokerName i/queueId o/offset g/consumerGroup s/beginTimestamp e/endTimestamp c/MessageNumber | Consume message.
sending sendMessage SendMessageCommand | t/topic* p/body* k/key c/tags b/broker i/qid m/msgTraceEnable | Send a message.
sending checkMsgSendRT CheckMsgSendRTCommand | t/topic* a/amount s/size | Check message send response time.
sending sendMsgStatus SendMsgStatusCommand | b/brokerName* s/messageSize c/count | Send msg to broker.
sending clusterRT CLusterSendMsgRTCommand | a/amount s/size c/cluster p/printLog m/machineRoom i/interval | List All clusters Message Send RT.
compaction dumpCompactionLog DumpCompactionLogCommand | f/file | Parse compaction log to message.
access createUser CreateUserSubCommand | {b/brokerAddr c/clusterName}* u/username* p/password* t/userType | Create user to cluster.
access updateUser UpdateUserSubCommand | {b/brokerAddr c/clusterName}* u/username* p/password t/userType s/userStatus | Update user to cluster.
access deleteUser DeleteUserSubCommand | {b/brokerAddr c/clusterName}* u/username* | Delete user from cluster.
access getUser GetUserSubCommand | {b/brokerAddr c/clusterName}* u/username | Get user from cluster.
access listUser ListUserSubCommand | {b/brokerAddr c/clusterName}* f/filter | List user from cluster.
access copyUser CopyUsersSubCommand | f/fromBroker* t/toBroker* u/usernames | Copy user to cluster.
access createAcl CreateAclSubCommand | {b/brokerAddr c/clusterName}* s/subject* r/resources* a/actions* i/sourceIp d/decision* | Create acl to cluster.
access updateAcl UpdateAclSubCommand | {b/brokerAddr c/clusterName}* s/subject* r/resources* a/actions* i/sourceIp d/decision* | Update acl to cluster.
access deleteAcl DeleteAclSubCommand | {b/brokerAddr c/clusterName}* s/subject* r/resources | Delete acl from cluster.
access getAcl GetAclSubCommand | {b/brokerAddr c/clusterName}* s/subject | Get acl from cluster.
access listAcl ListAclSubCommand | {b/brokerAddr c/clusterName}* s/subject r/resource | List acl from cluster.
access copyAcl CopyAclsSubCommand | f/fromBroker* t/toBroker* s/subjects | Copy acl to cluster.
controllers getControllerConfig GetControllerConfigSubCommand | a/controllerAddress* | Get controller config.
controllers updateControllerConfig UpdateControllerConfigSubCommand | a/controllerAddress* k/key* v/value* | Update controller config.
controllers getControllerMetaData GetControllerMetaDataSubCommand | a/controllerAddress* | Get controller cluster's metadata.
controllers getSyncStateSet GetSyncStateSetSubCommand | a/controllerAddress* c/clusterName b/brokerName i/interval | Fetch syncStateSet for target brokers.
controllers electMaster ReElectMasterSubCommand | a/controllerAddress* b/brokerId* bn/brokerName* c/clusterName* | Re-elect the specified broker as master.
controllers cleanBrokerMetadata CleanControllerBrokerMetaSubCommand | a/controllerAddress* b/brokerControllerIdsToClean bn/brokerName* c/clusterName l/cleanLivingBroker! | Clean metadata of broker on controller.
exports exportMetadata ExportMetadataCommand | c/clusterName b/brokerAddr f/filePath t/topic! g/subscriptionGroup! s/specialTopic! | Export metadata.
exports exportConfigs ExportConfigsCommand | c/clusterName* f/filePath | Export configs.
exports exportMetrics ExportMetricsCommand | c/clusterName* f/filePath | Export metrics.
- exportMetadataInRocksDB ExportMetadataInRocksDBCommand | p/path* t/configType* j/jsonEnable | Export RocksDB kv config (topics/subscriptionGroups).
lite getBrokerLiteInfo GetBrokerLiteInfoSubCommand | {b/brokerAddr c/cluster}* d/showDetail! | Get broker lite info.
lite getParentTopicInfo GetParentTopicInfoSubCommand | p/parentTopic* | Get parent topic info.
lite getLiteTopicInfo GetLiteTopicInfoSubCommand | p/parentTopic* l/liteTopic* s/showClientId! | Get lite topic info.
lite getLiteClientInfo GetLiteClientInfoSubCommand | p/parentTopic* g/group* c/clientId* s/showDetail! | Get lite client info.
lite getLiteGroupInfo GetLiteGroupInfoSubCommand | p/parentTopic* g/group* l/liteTopic k/topK | Get lite group info.
lite triggerLiteDispatch TriggerLiteDispatchSubCommand | p/parentTopic* g/group* c/clientId b/brokerName | Trigger lite dispatch.
"""  # noqa: E501 - a table

UNSUPPORTED = {
    "updateStaticTopic": "OrbitMQ's brokers have no static topics, use updateTopic; for those of Apache's brokers "
    "use Apache's mqadmin",
    "remappingStaticTopic": "OrbitMQ's brokers have no static topics; for those of Apache's brokers use Apache's "
    "mqadmin",
    "exportMetadataInRocksDB": "OrbitMQ has no RocksDB; use exportMetadata",
}
"""Commands that do not work here, and what to use."""


@dataclasses.dataclass(frozen=True, slots=True)
class Option:
    """One option of a command."""

    short: str
    long: str
    is_required: bool
    has_value: bool

    @property
    def name(self) -> str:
        """The key of its value: the short form, or the long one where there is no short."""
        return self.short or self.long


@dataclasses.dataclass(frozen=True, slots=True)
class Spec:
    """One command."""

    name: str
    java_class: str
    """Apache's name of it, which its errors begin with."""
    module: str
    """Empty: it does not work here."""
    options: tuple[Option, ...]
    either: tuple[str, ...]
    """Options of which exactly one is given."""
    summary: str


def _spec(line: str) -> Spec:
    head, options, summary = line.split(" | ", 2) if " | " in line else (line, "", "")
    module, name, java_class = head.split()
    group = re.search(r"\{([^}]*)\}\*", options)
    either = tuple(word.partition("/")[0] for word in group[1].split()) if group else ()
    plain = re.sub(r"[{}]\*?", "", options)
    found = tuple(_option(word) for word in plain.split())
    return Spec(name, java_class, "" if module == "-" else module, found, either, summary)


def _option(word: str) -> Option:
    short, _, long = word.rstrip("*!").partition("/")
    return Option(short, long, word.endswith("*"), not word.endswith("!"))


SPECS = {spec.name: spec for spec in map(_spec, _TABLE.strip().replace("| | ", "|  | ").splitlines())}
"""All commands by name."""

_BY_NAME = {name.lower(): spec for name, spec in SPECS.items()}


def spec_named(name: str) -> Spec | None:
    """The command of a name, in any case."""
    return _BY_NAME.get(name.lower())


def function_name(command: str) -> str:
    """``update_topic`` of ``updateTopic``."""
    text = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", command)
    return re.sub(r"(?<=[A-Z])(?=[A-Z][a-z])", "_", text).lower()
