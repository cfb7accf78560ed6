'use strict';

// The RocketMQ client for Node.js as a peer: producers and consumers in one process that does what it is told.
//
// Argument: the name server's address. A request is a line of standard input, an object with "do" and its
// arguments; its answer is a line of standard output, an object with either "answer" or "error". Requests are
// served one after the other.

const { performance } = require('perf_hooks');
const readline = require('readline');
const { Consumer, Message, Producer } = require('ali-ons');

const nameServer = process.argv[2];
// Answers have the standard output to themselves: what the library says goes to the other stream.
const logger = { debug() {}, info() {}, warn: console.error, error: console.error };
const producers = new Map();
const consumers = new Map();

function settings(asked) {
  return {
    nameSrv: nameServer,
    instanceName: asked.name,
    // The client signs every request; a broker without access control does not look.
    accessKeyId: 'nobody',
    accessKeySecret: 'nothing',
    // Asked for the name server's address where that is not given; the client insists on having one.
    httpclient: { request() { throw new Error('no web server is to be asked'); } },
    // A route that is made by the first heartbeat is seen soon, not after half a minute.
    pollNameServerInteval: 1000,
    rebalanceInterval: 1000,
    logger,
  };
}

async function startProducer(asked) {
  const producer = new Producer({ ...settings(asked), producerGroup: asked.group });
  producer.on('error', error => console.error(error));
  await producer.ready();
  producers.set(asked.name, producer);
}

async function send(asked) {
  const results = [];
  for (const wanted of asked.messages) {
    const message = new Message(wanted.topic, wanted.tag || '', Buffer.from(wanted.body, 'base64'));
    if (wanted.keys && wanted.keys.length) message.keys = wanted.keys;
    if (wanted.delay) message.delayTimeLevel = wanted.delay;
    if (wanted.sharding) message.shardingKey = wanted.sharding;
    Object.assign(message.properties, wanted.properties);
    const result = await producers.get(asked.name).send(message);
    results.push({
      status: result.sendStatus,
      messageId: result.msgId,
      offsetId: result.msgId,
      broker: result.messageQueue.brokerName,
      queueId: Number(result.messageQueue.queueId),
      queueOffset: Number(result.queueOffset),
    });
  }
  return results;
}

async function startConsumer(asked) {
  const consumer = new Consumer({
    ...settings(asked),
    consumerGroup: asked.group,
    consumeFromWhere: 'CONSUME_FROM_FIRST_OFFSET',
  });
  consumer.on('error', error => console.error(error));
  const received = [];
  const failures = { ...asked.failures };
  consumer.subscribe(asked.topic, asked.expression, async message => {
    received.push(describe(message));
    const body = message.body.toString();
    if (failures[body] > 0) {
      failures[body]--;
      return Consumer.ACTION_RETRY;
    }
  });
  await consumer.ready();
  consumers.set(asked.name, { consumer, received });
}

function describe(message) {
  return {
    topic: message.topic,
    body: message.body.toString('base64'),
    tag: message.tags || '',
    keys: message.keys || '',
    queueId: message.queueId,
    queueOffset: Number(message.queueOffset),
    messageId: message.msgId,
    offsetId: message.msgId,
    reconsumeTimes: message.reconsumeTimes,
    storeHost: String(message.storeHost),
    properties: message.properties,
  };
}

// Hands over what a consumer was given, once that is enough or the time is up.
async function take(asked) {
  const { received } = consumers.get(asked.name);
  const deadline = Date.now() + asked.seconds * 1000;
  while (received.length < asked.count && Date.now() < deadline) {
    await new Promise(done => setTimeout(done, 10));
  }
  return received.splice(0);
}

// Sends messages for some seconds, so many at a time.
async function sendFor(asked) {
  const producer = producers.get(asked.name);
  const body = Buffer.from(Array.from({ length: asked.size }, (_, at) => 97 + at % 26));
  const found = { messages: 0, failures: 0, failure: '' };
  const start = Date.now();
  async function work() {
    while (Date.now() - start < asked.seconds * 1000) {
      try {
        await producer.send(new Message(asked.topic, 'TagA', body));
        found.messages++;
      } catch (error) {
        found.failures++;
        found.failure = found.failure || String(error.message || error);
      }
    }
  }
  await Promise.all(Array.from({ length: asked.workers }, work));
  return { ...found, seconds: (Date.now() - start) / 1000 };
}

const counters = new Map();

// A consumer that counts what it is given.
async function startCounter(asked) {
  const consumer = new Consumer({
    ...settings(asked),
    consumerGroup: asked.group,
    consumeFromWhere: 'CONSUME_FROM_FIRST_OFFSET',
  });
  consumer.on('error', error => console.error(error));
  const counter = { messages: 0, first: 0, last: 0 };
  consumer.subscribe(asked.topic, '*', async () => {
    counter.last = performance.now();
    counter.first = counter.first || counter.last;
    counter.messages++;
  });
  await consumer.ready();
  consumers.set(asked.name, { consumer, received: [] });
  counters.set(asked.name, counter);
}

// What a counter was given, once that is enough or the time is up; the seconds are from the first to the last.
async function counted(asked) {
  const counter = counters.get(asked.name);
  const deadline = Date.now() + asked.seconds * 1000;
  while (counter.messages < asked.count && Date.now() < deadline) {
    await new Promise(done => setTimeout(done, 1));
  }
  const seconds = (counter.last - counter.first) / 1000;
  return { messages: counter.messages, failures: 0, failure: '', seconds };
}

async function close(asked) {
  if (producers.has(asked.name)) await producers.get(asked.name).close();
  if (consumers.has(asked.name)) await consumers.get(asked.name).consumer.close();
  producers.delete(asked.name);
  consumers.delete(asked.name);
}

const requests = {
  producer: startProducer, send, consumer: startConsumer, take, close, sendFor, counter: startCounter, counted,
};

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const asked = JSON.parse(line);
    let reply;
    try {
      const answer = await requests[asked.do](asked);
      reply = { answer: answer === undefined ? null : answer };
    } catch (error) {
      console.error(error);
      reply = { error: String(error.message || error) };
    }
    process.stdout.write(JSON.stringify(reply) + '\n');
  }
  process.exit(0);
}

main();
