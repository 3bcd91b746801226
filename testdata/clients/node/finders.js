'use strict';
// Clients that find the leader by themselves. They use TLS, and a user, if the
// environment has them; COORDD_ADDRS names the nodes. Each has
// set(key, value), setNX(key, value, leaseMs), get(key), fence(key),
// script(name, key, args), role() if it has one leader to itself, and close().

const crypto = require('node:crypto');
const fs = require('node:fs');
const { addresses } = require('./env');
const scripts = require('./adapters/scripts');

const nodes = addresses('COORDD_ADDRS').map((address) => {
  const [, host, port] = address.match(/^(.*):(\d+)$/);
  return { host, port: Number(port) };
});

const { COORDD_USER: username, COORDD_PASSWORD: password, COORDD_TLS_CA, COORDD_TLS_CERT, COORDD_TLS_KEY } = process.env;

// Reads the certificates, which may be other ones later.
function tls() {
  if (!COORDD_TLS_CA) return undefined;
  return { ca: fs.readFileSync(COORDD_TLS_CA), cert: fs.readFileSync(COORDD_TLS_CERT), key: fs.readFileSync(COORDD_TLS_KEY) };
}

function ofIORedis(client) {
  client.on('error', () => {}); // the pending call reports it
  for (const [name, lua] of Object.entries(scripts)) client.defineCommand(name, { numberOfKeys: 1, lua });
  return {
    set: (key, value) => client.set(key, value),
    setNX: async (key, value, leaseMs) => (await client.set(key, value, 'PX', leaseMs, 'NX')) === 'OK',
    get: (key) => client.get(key),
    fence: (key) => client.call('FENCE', key),
    script: (name, key, args) => client[name](key, ...args),
    close: () => client.disconnect(),
  };
}

const hashes = Object.fromEntries(
  Object.entries(scripts).map(([name, source]) => [name, crypto.createHash('sha1').update(source).digest('hex')]),
);

async function ofNodeRedis(client, send) {
  client.on('error', () => {});
  client.on('node-error', () => {}); // of a cluster
  client.on('client-error', () => {}); // of Sentinel
  await client.connect();
  return {
    set: (key, value) => client.set(key, value),
    setNX: async (key, value, leaseMs) => (await client.set(key, value, { condition: 'NX', expiration: { type: 'PX', value: leaseMs } })) === 'OK',
    get: (key) => client.get(key),
    fence: (key) => send(key, ['FENCE', key]),
    async script(name, key, args) {
      try {
        return await client.evalSha(hashes[name], { keys: [key], arguments: args });
      } catch (err) {
        if (!err.message.startsWith('NOSCRIPT')) throw err;
        return client.eval(scripts[name], { keys: [key], arguments: args });
      }
    },
    close: () => client.destroy(),
  };
}

// Knows one node, the first.
async function ofOneNode(maintNotifications) {
  const { createClient } = require('redis');
  const client = createClient({ socket: nodes[0], RESP: 3, maintNotifications, maintEndpointType: 'internal-ip' });
  return ofNodeRedis(client, (_key, args) => client.sendCommand(args));
}

const KINDS = {
  'redis-moving': () => ofOneNode('enabled'),
  'redis-still': () => ofOneNode('disabled'),
  'ioredis-cluster': async () => {
    const { Cluster } = require('ioredis');
    return ofIORedis(new Cluster(nodes, { redisOptions: { username, password, tls: tls() } }));
  },
  'ioredis-sentinel': async () => {
    const { Redis } = require('ioredis');
    const client = new Redis({
      sentinels: nodes, name: 'mymaster', username, password, tls: tls(), sentinelUsername: username, sentinelPassword: password,
      sentinelTLS: tls(), enableTLSForSentinelMode: Boolean(tls()),
    });
    return { ...ofIORedis(client), role: async () => (await client.role())[0] };
  },
  'redis-cluster': async () => {
    const { createCluster } = require('redis');
    const client = createCluster({
      rootNodes: nodes.map((socket) => ({ socket })), defaults: { username, password, socket: { tls: Boolean(tls()), ...tls() } },
    });
    return ofNodeRedis(client, (key, words) => client.sendCommand(key, false, words));
  },
  'redis-sentinel': async () => {
    const { createSentinel } = require('redis');
    const options = { username, password, socket: { tls: Boolean(tls()), ...tls() } };
    const client = createSentinel({ name: 'mymaster', sentinelRootNodes: nodes, nodeClientOptions: options, sentinelClientOptions: options });
    const finder = await ofNodeRedis(client, (_, words) => client.sendCommand(false, words));
    return { ...finder, role: () => client.use(async (master) => (await master.role()).role) };
  },
};

// Returns the library that a kind of client belongs to.
const library = (kind) => kind.split('-')[0];

const version = (kind) => require(`${library(kind)}/package.json`).version;

module.exports = { KINDS, nodes, version };
