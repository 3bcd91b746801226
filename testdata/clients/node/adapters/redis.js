'use strict';
// node-redis, with its own calls and its default handshake. Both adapters have
// the same methods, so that the scenarios are written once; nil is null.

const crypto = require('node:crypto');
const { createClient, WatchError } = require('redis');
const scripts = require('./scripts');

const hashes = Object.fromEntries(
  Object.entries(scripts).map(([name, source]) => [name, crypto.createHash('sha1').update(source).digest('hex')]),
);

class NodeRedis {
  constructor(client) {
    this.client = client;
  }

  async setNX(key, value, leaseMs) {
    const reply = await this.client.set(key, value, { condition: 'NX', expiration: { type: 'PX', value: leaseMs } });
    return reply === 'OK';
  }

  set(key, value) { return this.client.set(key, value); }
  get(key) { return this.client.get(key); }
  del(key) { return this.client.del(key); }
  exists(key) { return this.client.exists(key); }
  pTTL(key) { return this.client.pTTL(key); }
  pExpire(key, ms) { return this.client.pExpire(key, ms); }
  hGet(key, field) { return this.client.hGet(key, field); }
  hLen(key) { return this.client.hLen(key); }
  zAdd(key, score, member) { return this.client.zAdd(key, { score, value: member }); }
  zCard(key) { return this.client.zCard(key); }
  zRemRangeByScore(key, min, max) { return this.client.zRemRangeByScore(key, min, max); }
  scriptLoad(source) { return this.client.scriptLoad(source); }
  watch(key) { return this.client.watch(key); }
  unwatch() { return this.client.unwatch(); }

  async hGetAll(key) { return { ...(await this.client.hGetAll(key)) }; }

  evalSha(hash, keys, args) {
    return this.client.evalSha(hash, { keys, arguments: args.map(String) });
  }

  // Runs a shared script by its hash, and by its source where it is not known.
  async script(name, keys, ...args) {
    try {
      return await this.evalSha(hashes[name], keys, args);
    } catch (err) {
      if (!err.message.startsWith('NOSCRIPT')) throw err;
      return this.client.eval(scripts[name], { keys, arguments: args.map(String) });
    }
  }

  // Counts a call and gives the lock back in one MULTI; null if EXEC ran nothing.
  async countCall({ window, lock, nowMs, windowMs, member }) {
    const replies = await orNull(this.client.multi()
      .zRemRangeByScore(window, '-inf', nowMs - windowMs)
      .zAdd(window, { score: nowMs, value: member })
      .zCard(window)
      .pExpire(window, windowMs)
      .del(lock)
      .exec());
    return replies === null ? null : replies[2];
  }

  // Writes a sale down in one MULTI; false if EXEC ran nothing.
  async sell({ stock, left, sales, sale, n }) {
    const replies = await orNull(this.client.multi().set(stock, String(left)).hSet(sales, sale, n).exec());
    return replies !== null;
  }

  // Calls back for each message, on a connection of its own; resolves when the
  // server has acknowledged, to a function that ends the subscription.
  async subscribe(channel, onMessage) {
    const subscriber = this.client.duplicate();
    subscriber.on('error', () => {}); // the pending call reports it
    await subscriber.connect();
    await subscriber.subscribe(channel, onMessage);
    return async () => {
      await subscriber.unsubscribe(channel);
      subscriber.destroy();
    };
  }

  close() { this.client.destroy(); }
}

// node-redis says by an error what EXEC says by nil.
async function orNull(exec) {
  try {
    return await exec;
  } catch (err) {
    if (err instanceof WatchError) return null;
    throw err;
  }
}

async function connect(address) {
  const client = createClient({ url: `redis://${address}` });
  client.on('error', () => {}); // the pending call reports it
  await client.connect();
  return new NodeRedis(client);
}

module.exports = { connect };
