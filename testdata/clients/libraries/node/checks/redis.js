'use strict';
const { createClient, WatchError } = require('redis');
const { node, unique, checks, want, check, together, until } = require('../lib');

const connect = (i) => createClient({ socket: node(i) }).on('error', () => {}).connect();

checks('redis', {
  'a counter raised under WATCH by six clients on three nodes ends exact': async () => {
    const key = unique('counter');
    await together(6, async (i) => {
      const client = await connect(i);
      for (let done = 0; done < 10;) {
        await client.watch(key);
        const seen = Number((await client.get(key)) ?? 0);
        try {
          await client.multi().set(key, seen + 1).exec();
          done += 1;
        } catch (err) {
          if (!(err instanceof WatchError)) throw err;
        }
      }
      client.destroy();
    });
    const client = await connect(0);
    want(await client.get(key), '60', 'the counter');
    client.destroy();
  },
  'BLPOP on three nodes takes each element once': async () => {
    const key = unique('queue');
    const taken = [];
    const workers = await together(6, connect);
    const working = workers.map(async (client) => {
      for (;;) {
        const item = await client.blPop(key, 0);
        if (item.element === 'end') return;
        taken.push(Number(item.element));
      }
    });
    const producer = await connect(1);
    for (let i = 0; i < 60; i += 1) await producer.rPush(key, String(i));
    for (let i = 0; i < 6; i += 1) await producer.rPush(key, 'end');
    await Promise.all(working);
    want(taken.sort((a, b) => a - b), Array.from({ length: 60 }, (_, i) => i), 'the elements taken');
    [...workers, producer].forEach((client) => client.destroy());
  },
  'a message published on one node reaches subscribers on all': async () => {
    const channel = unique('channel');
    let got = 0;
    const subscribers = await together(3, connect);
    await Promise.all(subscribers.map((client) => client.subscribe(channel, (text) => { got += text === 'hello' ? 1 : 0; })));
    const publisher = await connect(2);
    await publisher.publish(channel, 'hello');
    await until(() => got === 3, 'three messages');
    [...subscribers, publisher].forEach((client) => client.destroy());
  },
  'a stream is shared by a consumer group on three nodes': async () => {
    const key = unique('stream');
    const clients = await together(3, connect);
    await clients[0].xGroupCreate(key, 'group', '0', { MKSTREAM: true });
    for (let i = 0; i < 30; i += 1) await clients[i % 3].xAdd(key, '*', { job: String(i) });
    const jobs = [];
    await together(3, async (i) => {
      for (;;) {
        const reply = await clients[i].xReadGroup('group', `consumer${i}`, { key, id: '>' }, { COUNT: 2, BLOCK: 200 });
        if (!reply) return;
        for (const message of reply[0].messages) {
          jobs.push(Number(message.message.job));
          want(await clients[i].xAck(key, 'group', message.id), 1, 'XACK');
        }
      }
    });
    want(jobs.sort((a, b) => a - b), Array.from({ length: 30 }, (_, i) => i), 'the jobs');
    const pending = await clients[1].xPending(key, 'group');
    check(pending.pending === 0, `${pending.pending} messages are pending`);
    clients.forEach((client) => client.destroy());
  },
});
