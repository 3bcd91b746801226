'use strict';
const { createClient, WatchError } = require('redis');
const { node, unique, checks, want, check, together, until, sleep, Room } = require('../lib');

const connect = (i) => createClient({ socket: node(i) }).on('error', () => {}).connect();

const raw = (client, ...words) => client.sendCommand(words.map(String));

// Raw calls of coordd's own commands. A connection has one call that waits at a time, and no time-out.
const own = {
  'LOCK.ACQUIRE with WAIT: six callers on three nodes hold it one at a time, tokens rise': async () => {
    const key = unique('lock');
    const room = new Room();
    const tokens = [];
    await together(6, async (i) => {
      const client = await connect(i);
      for (let done = 0; done < 4; done += 1) {
        const me = unique('owner');
        const [token] = await raw(client, 'LOCK.ACQUIRE', key, me, 'PX', 10000, 'WAIT', 30000, 'ID', me);
        tokens.push(token);
        await room.visit(3);
        want(await raw(client, 'LOCK.RELEASE', key, me, 'TOKEN', token), 1, 'the release');
      }
      client.destroy();
    });
    want([room.most, room.visits], [1, 24], 'most at a time, visits');
    check(tokens[0] > 0 && tokens.every((token, i) => i === 0 || token > tokens[i - 1]), `the tokens do not rise: ${tokens}`);
  },
  'LEASE: a lock and a key live while it is renewed; its end serves who waits': async () => {
    const [lock, key] = [unique('lock'), unique('key')];
    const [client, other] = await together(2, connect);
    const id = await raw(client, 'LEASE', 'GRANT', 1000, 'CONNECTION');
    const [first] = await raw(client, 'LOCK.ACQUIRE', lock, 'a', 'LEASE', id);
    await raw(client, 'SET', key, 'v', 'LEASE', id);
    const second = raw(other, 'LOCK.ACQUIRE', lock, 'b', 'PX', 10000, 'WAIT', 20000);
    for (let i = 0; i < 15; i += 1) { // longer than the lease
      await sleep(100);
      want(await raw(client, 'LEASE', 'KEEPALIVE', id), [1000], 'what is left');
    }
    want([await client.get(lock), await client.exists(key)], ['a', 1], 'what lives');
    want(await raw(client, 'LEASE', 'REVOKE', id), 1, 'the end');
    check((await second)[0] > first, 'the next has no larger token');
    want(await client.exists(key), 0, 'what lives after the end');
    [client, other].forEach((c) => c.destroy());
  },
  'ID: what is sent again through another node has the first reply': async () => {
    const [lock, counter, id] = [unique('lock'), unique('counter'), unique('id')];
    const clients = await together(3, connect);
    const replies = [];
    for (const client of clients) {
      replies.push(JSON.stringify([
        await raw(client, 'LOCK.ACQUIRE', lock, 'me', 'PX', 10000, 'WAIT', 1000, 'ID', `${id}:l`),
        await raw(client, 'INCREX', counter, 'EX', 60, 'ID', `${id}:c`),
      ]));
    }
    want(new Set(replies).size, 1, 'different replies');
    want(await clients[0].get(counter), '1', 'the counter');
    clients.forEach((client) => client.destroy());
  },
  'WINDOW.HIT: of 40 calls at once on three nodes exactly 10 are allowed': async () => {
    const key = unique('window');
    const clients = await together(3, connect);
    const replies = await together(40, (i) => raw(clients[i % 3], 'WINDOW.HIT', key, 10, 'PX', 60000));
    want(replies.filter(([allowed]) => allowed === 1).length, 10, 'allowed');
    clients.forEach((client) => client.destroy());
  },
};

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
  ...own,
});
