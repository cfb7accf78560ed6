// Node.js gRPC client as a peer: producers and consumers in one process that does what a line of JSON says.
//
// Argument: the endpoints. A request is a line of standard input, an object with "do" and its arguments; its answer is
// a line of standard output.

const { createInterface } = require('node:readline');
const {
  ConsumeResult, FilterExpression, Producer, PushConsumer, SimpleConsumer,
} = require('rocketmq-client-nodejs');

const write = process.stdout.write.bind(process.stdout);
console.log = console.info = console.error;
process.stdout.write = process.stderr.write.bind(process.stderr);

const endpoints = process.argv[2];
const TAG = 1;
const SQL = 2;
const RESOLUTIONS = { commit: 1, rollback: 2 };
const base = { endpoints, namespace: '', requestTimeout: 10000 };
const clients = new Map();
const messages = new Map();
const received = new Map();

function filters(topics) {
  return new Map(Object.entries(topics).map(([ topic, one ]) =>
    [ topic, new FilterExpression(one.expression, one.sql ? SQL : TAG) ]));
}

function described(view) {
  return {
    topic: view.topic,
    body: view.body.toString('base64'),
    tag: view.tag ?? null,
    keys: view.keys,
    properties: Object.fromEntries(view.properties),
    messageId: view.messageId,
    attempt: view.deliveryAttempt,
    group: view.messageGroup || null,
  };
}

function made(wanted) {
  const message = { topic: wanted.topic, body: Buffer.from(wanted.body, 'base64') };
  if (wanted.tag) message.tag = wanted.tag;
  if (wanted.keys.length) message.keys = wanted.keys;
  if (wanted.group) message.messageGroup = wanted.group;
  if (wanted.delayMs) message.deliveryTimestamp = new Date(Date.now() + wanted.delayMs);
  message.properties = new Map(Object.entries(wanted.properties));
  return message;
}

const verbs = {
  async producer({ name, topics, check }) {
    const producer = new Producer({ ...base, topic: topics, checker: { check: async () => RESOLUTIONS[check] } });
    await producer.startup();
    clients.set(name, producer);
  },
  async send({ name, messages: wanted }) {
    const found = [];
    for (const one of wanted) {
      const sent = await clients.get(name).send(made(one));
      found.push({ messageId: sent.messageId, recallHandle: sent.recallHandle ?? '', offset: sent.offset });
    }
    return found;
  },
  async recall({ name, topic, handle }) {
    return (await clients.get(name).recallMessage(topic, handle)).messageId;
  },
  async transaction({ name, message, action }) {
    const transaction = clients.get(name).beginTransaction();
    const sent = await clients.get(name).send(made(message), transaction);
    if (action === 'commit') await transaction.commit();
    if (action === 'rollback') await transaction.rollback();
    return sent.messageId;
  },
  async simple({ name, group, topics, seconds }) {
    const consumer = new SimpleConsumer({
      ...base, consumerGroup: group, subscriptions: filters(topics), awaitDuration: seconds * 1000,
    });
    await consumer.startup();
    clients.set(name, consumer);
  },
  async receive({ name, count, invisible }) {
    const found = await clients.get(name).receive(count, invisible * 1000);
    for (const view of found) messages.set(`${name} ${view.messageId}`, view);
    return found.map(described);
  },
  async ack({ name, ids }) {
    for (const id of ids) await clients.get(name).ack(messages.get(`${name} ${id}`));
  },
  async hide({ name, message, seconds }) {
    await clients.get(name).changeInvisibleDuration(messages.get(`${name} ${message}`), seconds * 1000);
  },
  async push({ name, group, topics, failures }) {
    const list = [];
    received.set(name, list);
    const messageListener = {
      async consume(view) {
        list.push(described(view));
        const body = view.body.toString();
        if (!(failures[body] > 0)) return ConsumeResult.SUCCESS;
        failures[body] -= 1;
        return ConsumeResult.FAILURE;
      },
    };
    const consumer = new PushConsumer({
      ...base, consumerGroup: group, subscriptions: filters(topics), messageListener,
    });
    await consumer.startup();
    clients.set(name, consumer);
  },
  async take({ name, count, seconds }) {
    const list = received.get(name);
    const deadline = Date.now() + seconds * 1000;
    while (list.length < count && Date.now() < deadline) await new Promise(done => setTimeout(done, 20));
    return list.splice(0);
  },
  async close({ name }) {
    await clients.get(name).shutdown();
    clients.delete(name);
  },
};

async function main() {
  for await (const line of createInterface({ input: process.stdin })) {
    const { do: verb, ...request } = JSON.parse(line);
    let answer;
    try {
      answer = { answer: (await verbs[verb](request)) ?? null };
    } catch (error) {
      answer = { error: `${error.name}: ${error.message}` };
    }
    write(`${JSON.stringify(answer)}\n`);
  }
  process.exit(0);
}

main();
