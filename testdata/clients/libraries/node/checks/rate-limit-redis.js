'use strict';
const express = require('express');
const { rateLimit } = require('express-rate-limit');
const { RedisStore } = require('rate-limit-redis');
const { createClient } = require('redis');
const Redis = require('ioredis');
const { node, unique, checks, want, together } = require('../lib');

// Serves on a port of its own, limited to 5 requests a minute by a store that all servers share.
async function serve(prefix, sendCommand) {
  const app = express();
  app.use(rateLimit({ windowMs: 60_000, limit: 5, standardHeaders: true, validate: false, keyGenerator: () => 'client', store: new RedisStore({ prefix, sendCommand }) }));
  app.get('/', (_, res) => res.send('ok'));
  const server = await new Promise((resolve) => { const s = app.listen(0, '127.0.0.1', () => resolve(s)); });
  return { url: `http://127.0.0.1:${server.address().port}/`, close: () => server.close() };
}

checks('rate-limit-redis', {
  'three servers with express-rate-limit on three nodes answer exactly 5 of 24 requests': async () => {
    const prefix = unique('rl:');
    const clients = await together(2, (i) => createClient({ socket: node(i) }).connect());
    const redis = new Redis(node(2));
    const servers = [
      ...(await Promise.all(clients.map((client) => serve(prefix, (...args) => client.sendCommand(args))))),
      await serve(prefix, (...args) => redis.call(...args)),
    ];
    const statuses = await together(24, async (i) => (await fetch(servers[i % 3].url)).status);
    want(statuses.filter((s) => s === 200).length, 5, 'answered');
    want(statuses.filter((s) => s === 429).length, 19, 'refused');
    servers.forEach((server) => server.close());
  },
});
