'use strict';
// What the scenarios stand on: callers with connections of their own, key
// names, callers that run together, and waiting as users of locks wait.

const crypto = require('node:crypto');
const { setMaxListeners } = require('node:events');
const net = require('node:net');
const { isDeepStrictEqual } = require('node:util');

// What a lease may seem short by, in ms: a server counts whole milliseconds.
const CLOCK_SLACK_MS = 2;

// How long a scenario may take to remove its keys; clients try to reach a server
// that is gone for ever.
const CLEAN_LIMIT_MS = 5000;

const RUN_ID = token();

// Returns a name that nobody else has: 20 hexadecimal digits.
function token() {
  return crypto.randomBytes(10).toString('hex');
}

// Splits a comma-separated environment variable.
function addresses(variable) {
  return (process.env[variable] ?? '').split(/[, ]+/).filter((address) => address !== '');
}

// Rejects when nobody listens at an address: the clients themselves would try on.
function reach(address) {
  const [, host, port] = address.match(/^(.*):(\d+)$/) ?? [];
  return new Promise((resolve, reject) => {
    const socket = net.connect({ host, port: Number(port), timeout: CLEAN_LIMIT_MS });
    const end = (settle) => {
      socket.destroy();
      settle();
    };
    socket.on('connect', () => end(resolve));
    socket.on('timeout', () => end(() => reject(new Error(`${address}: no answer`))));
    socket.on('error', (err) => end(() => reject(new Error(`${address}: ${err.code ?? err.message}`))));
  });
}

// Throws unless what was got is what is wanted.
function want(got, wanted, what) {
  if (!isDeepStrictEqual(got, wanted)) {
    throw new Error(`${what}: got ${JSON.stringify(got)}, want ${JSON.stringify(wanted)}`);
  }
}

// Throws unless the condition holds.
function check(condition, what) {
  if (!condition) throw new Error(what);
}

// Runs n callers at once; rejects with what all of those that failed said.
async function together(n, caller) {
  const ends = await Promise.allSettled(Array.from({ length: n }, (_, i) => caller(i)));
  const reasons = ends.filter((end) => end.status === 'rejected').map((end) => end.reason.message);
  if (reasons.length > 0) throw new Error(reasons.join('; '));
  return ends.map((end) => end.value);
}

// One scenario's world.
class Env {
  constructor(library, name) {
    this.adapter = require(`./adapters/${library}`);
    this.prefix = `scn:${library}:${RUN_ID}:${name}:`;
    this.nodes = addresses('COORDD_ADDRS');
    this.singles = addresses('COORDD_SINGLES');
    this.open = [];
    this.keys = new Set();
    this.stopped = new AbortController();
    setMaxListeners(0, this.stopped.signal); // every caller that waits listens
    this.shared = this.caller();
  }

  // Names a key of this scenario, which end() removes.
  key(name) {
    this.keys.add(this.prefix + name);
    return this.prefix + name;
  }

  // Opens a connection that end() closes.
  async connect(address) {
    const client = await this.adapter.connect(address);
    this.open.push(client);
    return client;
  }

  // Returns a caller: something with its own connection to each server, as a
  // process of its own would have. node(i) counts the nodes round and round.
  caller() {
    const connections = new Map();
    const to = (address) => {
      if (!connections.has(address)) connections.set(address, this.connect(address));
      return connections.get(address);
    };
    return {
      node: (i) => to(this.nodes[i % this.nodes.length]),
      nodes: () => Promise.all(this.nodes.map(to)),
      singles: () => Promise.all(this.singles.map(to)),
    };
  }

  node(i) {
    return this.shared.node(i);
  }

  // Waits, unless the scenario's time is over.
  pause(ms) {
    return new Promise((resolve, reject) => {
      const { signal } = this.stopped;
      const stop = () => {
        clearTimeout(timer);
        reject(new Error('out of time'));
      };
      const timer = setTimeout(() => {
        signal.removeEventListener('abort', stop);
        resolve();
      }, ms);
      signal.addEventListener('abort', stop, { once: true });
      if (signal.aborted) stop();
    });
  }

  // Waits before try number attempt (from 0): exponentially longer up to 80 ms,
  // with full jitter so that callers who collided do not collide again.
  backOff(attempt) {
    return this.pause(1 + Math.random() * 5 * 2 ** Math.min(attempt, 4));
  }

  // Fails unless the counter holds exactly n, seen from every node.
  async wantCount(key, n) {
    for (let i = 0; i < this.nodes.length; i++) {
      want(await (await this.node(i)).get(key), String(n), `the counter on node ${i}`);
    }
  }

  stop() {
    this.stopped.abort();
  }

  // Removes the scenario's keys on every server and closes all connections.
  async end() {
    this.stop();
    let timer;
    const tooLate = new Promise((_, reject) => {
      timer = setTimeout(() => reject(new Error('removing the keys took too long')), CLEAN_LIMIT_MS);
    });
    try {
      await Promise.race([this.removeKeys(), tooLate]);
    } finally {
      clearTimeout(timer);
      for (const client of this.open) client.close();
    }
  }

  async removeKeys() {
    const servers = [await this.node(0), ...(await this.shared.singles())];
    for (const server of servers) {
      for (const key of this.keys) await server.del(key);
    }
  }
}

// Adds one to a counter in the way that loses updates unless a lock keeps
// others out: it reads, and then writes.
async function raise(client, key) {
  const n = Number((await client.get(key)) ?? 0);
  await client.set(key, String(n + 1));
}

module.exports = { Env, CLOCK_SLACK_MS, RUN_ID, addresses, check, raise, reach, together, token, want };
