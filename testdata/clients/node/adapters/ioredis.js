'use strict';
// ioredis, with its own calls and its default handshake (it waits for INFO).
// Both adapters have the same methods; nil is null.

const { Redis } = require('ioredis');
const scripts = require('./scripts');

class IORedis {
  constructor(client) {
    this.client = client;
  }

  async setNX(key, value, leaseMs) {
    return (await this.client.set(key, value, 'PX', leaseMs, 'NX')) === 'OK';
  }

  set(key, value) { return this.client.set(key, value); }
  get(key) { return this.client.get(key); }
  del(key) { return this.client.del(key); }
  exists(key) { return this.client.exists(key); }
  pTTL(key) { return this.client.pttl(key); }
  pExpire(key, ms) { return this.client.pexpire(key, ms); }
  hGet(key, field) { return this.client.hget(key, field); }
  hGetAll(key) { return this.client.hgetall(key); }
  hLen(key) { return this.client.hlen(key); }
  zAdd(key, score, member) { return this.client.zadd(key, score, member); }
  zCard(key) { return this.client.zcard(key); }
  zRemRangeByScore(key, min, max) { return this.client.zremrangebyscore(key, min, max); }
  scriptLoad(source) { return this.client.script('LOAD', source); }
  watch(key) { return this.client.watch(key); }
  unwatch() { return this.client.unwatch(); }

  evalSha(hash, keys, args) {
    return this.client.evalsha(hash, keys.length, ...keys, ...args);
  }

  // Runs a shared script; ioredis sends its hash, and its source where it is
  // not known.
  script(name, keys, ...args) {
    return this.client[name](keys.length, ...keys, ...args);
  }

  // Counts a call and gives the lock back in one MULTI; null if EXEC ran nothing.
  async countCall({ window, lock, nowMs, windowMs, member }) {
    const replies = await this.client.multi()
      .zremrangebyscore(window, '-inf', nowMs - windowMs)
      .zadd(window, nowMs, member)
      .zcard(window)
      .pexpire(window, windowMs)
      .del(lock)
      .exec();
    return replies === null ? null : values(replies)[2];
  }

  // Writes a sale down in one MULTI; false if EXEC ran nothing.
  async sell({ stock, left, sales, sale, n }) {
    const replies = await this.client.multi().set(stock, left).hset(sales, sale, n).exec();
    return replies !== null && values(replies).length === 2;
  }

  // Calls back for each message, on a connection of its own; resolves when the
  // server has acknowledged, to a function that ends the subscription.
  async subscribe(channel, onMessage) {
    const subscriber = this.client.duplicate();
    subscriber.on('error', () => {}); // the pending call reports it
    subscriber.on('message', (_, message) => onMessage(message));
    await subscriber.connect();
    await subscriber.subscribe(channel);
    return async () => {
      await subscriber.unsubscribe(channel);
      subscriber.disconnect();
    };
  }

  close() { this.client.disconnect(); }
}

// Unwraps the [error, value] pairs of EXEC's answer.
function values(replies) {
  return replies.map(([err, value]) => {
    if (err) throw err;
    return value;
  });
}

async function connect(address) {
  const [, host, port] = address.match(/^(.*):(\d+)$/);
  const client = new Redis({ host, port: Number(port), lazyConnect: true });
  client.on('error', () => {}); // the pending call reports it
  for (const [name, lua] of Object.entries(scripts)) client.defineCommand(name, { lua });
  await client.connect();
  return new IORedis(client);
}

module.exports = { connect };
