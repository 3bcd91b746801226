'use strict';
// Writes through a client that finds the leader by itself, while a test kills
// leaders; see ../README.md under "Finding the leader".
//   node discover.js ioredis-cluster|ioredis-sentinel|redis-cluster|redis-sentinel PREFIX
// COORDD_ADDRS names the nodes.

const { setTimeout: sleep } = require('node:timers/promises');
const { addresses } = require('./env');

const WRITERS = 4;
const ERROR_PAUSE_MS = 20;

const nodes = addresses('COORDD_ADDRS').map((address) => {
  const [, host, port] = address.match(/^(.*):(\d+)$/);
  return { host, port: Number(port) };
});

// Each gives a client with set(key, value), role() where the client has one
// leader to itself, and close().
const CLIENTS = {
  'ioredis-cluster': async () => {
    const { Cluster } = require('ioredis');
    const client = new Cluster(nodes);
    client.on('error', () => {}); // the pending call reports it
    return { set: (k, v) => client.set(k, v), close: () => client.disconnect() };
  },
  'ioredis-sentinel': async () => {
    const { Redis } = require('ioredis');
    const client = new Redis({ sentinels: nodes, name: 'mymaster' });
    client.on('error', () => {});
    return { set: (k, v) => client.set(k, v), role: async () => (await client.role())[0], close: () => client.disconnect() };
  },
  'redis-cluster': async () => {
    const { createCluster } = require('redis');
    const client = createCluster({ rootNodes: nodes.map(({ host, port }) => ({ url: `redis://${host}:${port}` })) });
    client.on('error', () => {});
    client.on('node-error', () => {});
    await client.connect();
    return { set: (k, v) => client.set(k, v), close: () => client.destroy() };
  },
  'redis-sentinel': async () => {
    const { createSentinel } = require('redis');
    const client = createSentinel({ name: 'mymaster', sentinelRootNodes: nodes });
    client.on('error', () => {});
    client.on('client-error', () => {});
    await client.connect();
    return {
      set: (k, v) => client.set(k, v),
      role: () => client.use(async (master) => (await master.role()).role),
      close: () => client.destroy(),
    };
  },
};

async function main() {
  const [kind, prefix] = process.argv.slice(2);
  if (!CLIENTS[kind] || !prefix || nodes.length === 0) {
    console.error(`usage: COORDD_ADDRS=host:port,... node discover.js ${Object.keys(CLIENTS).join('|')} PREFIX`);
    process.exit(2);
  }
  const client = await CLIENTS[kind]();
  let stopped = false;
  const writer = async (i) => {
    for (let n = 0; !stopped; n++) {
      const key = `${prefix}:${i}:${n}`;
      try {
        await client.set(key, String(n));
        console.log(`ack ${key}`);
      } catch (err) {
        console.log(`err ${String(err.message).replaceAll('\n', ' ')}`);
        await sleep(ERROR_PAUSE_MS);
      }
    }
  };
  const writers = Array.from({ length: WRITERS }, (_, i) => writer(i));
  process.stdin.resume();
  await new Promise((resolve) => process.stdin.on('end', resolve));
  stopped = true;
  await Promise.all(writers);
  if (client.role) console.log(`role ${await client.role()}`);
  console.log('end');
  client.close();
  process.exit(0);
}

main();
