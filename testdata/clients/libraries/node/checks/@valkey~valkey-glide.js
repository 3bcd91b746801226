'use strict';
const { GlideClient, GlideClusterClient, Script, TimeUnit } = require('@valkey/valkey-glide');
const { nodes, standalone, unique, checks, want, together, sleep, Room } = require('../lib');

const release = new Script("if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0");

// Takes and releases a lock five times.
async function lockFiveTimes(client, key, room) {
  for (let done = 0; done < 5;) {
    const me = unique('owner');
    if ((await client.set(key, me, { conditionalSet: 'onlyIfDoesNotExist', expiry: { type: TimeUnit.Milliseconds, count: 5000 } })) === 'OK') {
      await room.visit(3);
      want(await client.invokeScript(release, { keys: [key], args: [me] }), 1, 'the release');
      done += 1;
    } else {
      await sleep(5 + Math.random() * 10);
    }
  }
}

// Six clients hold a lock one at a time.
async function one(connect) {
  const key = unique('lock');
  const room = new Room();
  await together(6, async (i) => {
    const client = await connect(i);
    await lockFiveTimes(client, key, room);
    client.close();
  });
  want([room.most, room.visits], [1, 30], 'most at a time, visits');
}

checks('@valkey/valkey-glide', {
  'given one address, of a follower with --present-as standalone: a lock has one holder at a time': () =>
    one(() => GlideClient.createClient({ addresses: [standalone] })),
  'given three addresses it finds the leader: a lock has one holder at a time': () =>
    one(() => GlideClient.createClient({ addresses: nodes })),
  'as a cluster client: a lock has one holder at a time': () =>
    one(() => GlideClusterClient.createClient({ addresses: nodes })),
  'a message published through the standalone follower reaches a subscriber on another node': async () => {
    const channel = unique('channel');
    let told;
    const message = new Promise((resolve) => { told = resolve; });
    const subscriber = await GlideClient.createClient({
      addresses: nodes,
      pubsubSubscriptions: { channelsAndPatterns: { 0: new Set([channel]) }, callback: (m) => told(String(m.message)) },
    });
    const publisher = await GlideClient.createClient({ addresses: [standalone] });
    await publisher.publish('hello', channel);
    want(await message, 'hello', 'the message');
    subscriber.close();
    publisher.close();
  },
});
