// Repeats one round of checks: node service.js redis-adapter|redis-streams-adapter|connect-redis.
// Prints `ok`, `failed WHY` (no service) or `wrong WHAT` (a broken promise) for each.
'use strict';
const { createServer } = require('http');
const { createClient } = require('redis');
const addrs = process.env.COORDD_ADDRS.split(',');
const pause = (ms) => new Promise((done) => { setTimeout(done, ms); });
class Wrong extends Error {}

// The adapters do not wait for PUBLISH: its error is nobody's.
process.on('unhandledRejection', (err) => console.error(`unhandled: ${err.message}`));

async function connect(addr, options = {}) {
  const socket = { reconnectStrategy: 200 };
  const client = createClient({ url: `redis://${addr}`, socket, ...options });
  client.on('error', (err) => console.error(`redis: ${err.message}`));
  await client.connect();
  return client;
}

const listen = (server) => new Promise((done) => { server.listen(0, '127.0.0.1', () => done(server.address().port)); });

// Two servers on two nodes; a client of each is in the room, and one is not.
async function socketio(open) {
  const { Server } = require('socket.io');
  const { io: dial } = require('socket.io-client');
  const servers = [];
  const clients = [];
  for (const addr of addrs.slice(0, 2)) {
    const http = createServer();
    const io = new Server(http, { adapter: await open(addr) });
    io.on('connection', (socket) => socket.join(socket.handshake.query.room));
    const port = await listen(http);
    servers.push(io);
    for (const room of ['members', 'others']) {
      const socket = dial(`http://127.0.0.1:${port}`, { query: { room }, transports: ['websocket'] });
      const client = { room, got: new Map() };
      socket.on('round', (n) => client.got.set(n, (client.got.get(n) || 0) + 1));
      await new Promise((done) => { socket.on('connect', done); });
      clients.push(client);
    }
  }
  await pause(500); // the adapters greet each other
  return async (n) => {
    const members = clients.filter((c) => c.room === 'members');
    servers[n % 2].to('members').emit('round', n);
    for (let i = 0; i < 100 && !members.every((c) => c.got.has(n)); i += 1) await pause(20);
    for (const c of clients) {
      const twice = [...c.got].filter(([, times]) => times > 1);
      if (twice.length > 0) throw new Wrong(`message ${twice[0][0]} came twice`);
      if (c.room === 'others' && c.got.size > 0) throw new Wrong('a message went to another room');
    }
    if (!members.every((c) => c.got.has(n))) throw new Error('a message did not come in two seconds');
    const count = await servers[n % 2].of('/').adapter.serverCount();
    if (count !== 2) throw new Error(`serverCount is ${count}`);
    const sockets = await servers[n % 2].in('members').fetchSockets();
    if (sockets.length !== 2) throw new Error(`${sockets.length} sockets are in the room`);
  };
}

// Three servers on three nodes count the visits of one browser.
async function sessions() {
  const express = require('express');
  const session = require('express-session');
  const { RedisStore } = require('connect-redis');
  const ports = [];
  for (const addr of addrs) {
    const client = await connect(addr, { disableOfflineQueue: true });
    const app = express();
    app.use(session({ store: new RedisStore({ client }), secret: 'systems', resave: false, saveUninitialized: false }));
    app.get('/', (req, res, next) => {
      req.session.visits = (req.session.visits || 0) + 1;
      req.session.save((err) => (err ? next(err) : res.send(String(req.session.visits))));
    });
    app.use((err, req, res, next) => (res.headersSent ? next(err) : res.status(503).send(err.message)));
    ports.push(await listen(createServer(app)));
  }
  let cookie = '';
  let seen = 0;
  let unknown = 0; // visits since that got no answer and may count
  return async (n) => {
    let res;
    try {
      res = await fetch(`http://127.0.0.1:${ports[n % 3]}/`, { headers: { cookie }, signal: AbortSignal.timeout(5000) });
      if (res.status !== 200) throw new Error(await res.text());
    } catch (err) {
      unknown += 1;
      throw err;
    }
    const set = res.headers.get('set-cookie');
    if (cookie && set && set.split(';')[0] !== cookie) throw new Wrong('another session was begun');
    cookie = cookie || set.split(';')[0];
    const visits = Number(await res.text());
    if (visits <= seen || visits > seen + 1 + unknown) throw new Wrong(`visit ${visits} after ${seen}`);
    seen = visits;
    unknown = 0;
  };
}

const services = {
  'redis-adapter': () => socketio(async (addr) => {
    const { createAdapter } = require('@socket.io/redis-adapter');
    return createAdapter(await connect(addr), await connect(addr), { requestsTimeout: 2000 });
  }),
  'redis-streams-adapter': () => socketio(async (addr) => {
    const { createAdapter } = require('@socket.io/redis-streams-adapter');
    return createAdapter(await connect(addr));
  }),
  'connect-redis': sessions,
};

async function main() {
  const round = await services[process.argv[2]]();
  for (let n = 1; ; n += 1) {
    try {
      await round(n);
      console.log('ok');
    } catch (err) {
      console.log(err instanceof Wrong ? 'wrong' : 'failed', err.message.replace(/\n/g, ' '));
    }
    await pause(50);
  }
}

main().catch((err) => {
  console.log('wrong', err.message);
  process.exit(1);
});
