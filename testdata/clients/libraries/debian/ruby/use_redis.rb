# frozen_string_literal: true

# ruby-redis: locks by SET NX PX and a script, WATCH, blocking pops, subscriptions.

require 'json'
require 'redis'
require 'securerandom'

LIBRARY = 'ruby-redis'
ADDRESSES = ENV.fetch('COORDD_ADDRS').split(',')
RELEASE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0"

# A client of the node that the i-th caller talks to.
def connect(index)
  host, _, port = ADDRESSES[index % ADDRESSES.size].rpartition(':')
  Redis.new(host: host, port: port.to_i, timeout: 30)
end

def unique(name)
  "#{name}:#{SecureRandom.hex(6)}"
end

def want(got, wanted, what)
  raise "#{what}: got #{got.inspect}, want #{wanted.inspect}" unless got == wanted
end

# Runs n callers at once and returns their results.
def together(count)
  threads = Array.new(count) { |i| Thread.new { yield i } }
  threads.each { |t| t.report_on_exception = false }
  threads.map(&:value)
end

# Runs a check and reports it.
def check(text)
  line = { library: LIBRARY, version: ENV.fetch('VERSION', ''), check: text, ok: true }
  begin
    yield
  rescue StandardError => e
    line.update(ok: false, error: "#{e.class}: #{e.message}")
  end
  puts JSON.generate(line)
  $stdout.flush
end

check 'six callers on three nodes raise a counter under a lock: it ends exact' do
  key = unique('lock')
  counter = 0
  together(6) do |i|
    redis = connect(i)
    done = 0
    while done < 4
      owner = unique('owner')
      unless redis.set(key, owner, nx: true, px: 5000)
        sleep rand(0.002..0.008)
        next
      end
      seen = counter
      sleep 0.002
      counter = seen + 1
      want(redis.eval(RELEASE, keys: [key], argv: [owner]), 1, 'the release')
      done += 1
    end
  end
  want(counter, 24, 'the counter')
end

check 'a counter raised under WATCH on three nodes ends exact' do
  key = unique('counter')
  together(4) do |i|
    redis = connect(i)
    done = 0
    while done < 6
      raised = redis.watch(key) do
        seen = redis.get(key).to_i
        redis.multi { |tx| tx.set(key, seen + 1) }
      end
      done += 1 if raised
    end
  end
  want(connect(0).get(key), '24', 'the counter')
end

check 'BLPOP on three nodes takes each element once' do
  key = unique('queue')
  producer = Thread.new do
    redis = connect(1)
    30.times { |n| redis.rpush(key, n) }
    3.times { redis.rpush(key, 'end') }
  end
  taken = together(3) do |i|
    redis = connect(i)
    mine = []
    loop do
      item = redis.blpop(key, timeout: 20)[1]
      break mine if item == 'end'

      mine << item.to_i
    end
  end
  producer.join
  want(taken.flatten.sort, (0...30).to_a, 'the elements taken')
end

check 'a subscription gets what another node publishes' do
  channel = unique('channel')
  got = nil
  connect(0).subscribe_with_timeout(10, channel) do |on|
    on.subscribe { connect(2).publish(channel, 'hello') }
    on.message do |_, text|
      got = text
      raise StopIteration
    end
  end
rescue StopIteration
  want(got, 'hello', 'the message')
end

check 'LOCK.ACQUIRE with WAIT: six callers on three nodes hold it one at a time, tokens rise' do
  key = unique('lock')
  counter = 0
  tokens = []
  together(6) do |i|
    redis = connect(i) # its time-out is longer than WAIT
    4.times do
      me = unique('owner')
      token, = redis.call('LOCK.ACQUIRE', key, me, 'PX', '10000', 'WAIT', '25000', 'ID', me)
      tokens << token
      seen = counter
      sleep 0.002
      counter = seen + 1
      want(redis.call('LOCK.RELEASE', key, me, 'TOKEN', token.to_s), 1, 'the release')
    end
  end
  want(counter, 24, 'the counter')
  want(tokens, tokens.uniq.sort, 'the tokens')
end

check 'LEASE: a lock and a key live while it is renewed; its end serves who waits' do
  lock = unique('lock')
  key = unique('key')
  redis = connect(0)
  lease = redis.call('LEASE', 'GRANT', '1000', 'CONNECTION').to_s
  first, = redis.call('LOCK.ACQUIRE', lock, 'a', 'LEASE', lease)
  redis.call('SET', key, 'v', 'LEASE', lease)
  waits = Thread.new { connect(1).call('LOCK.ACQUIRE', lock, 'b', 'PX', '10000', 'WAIT', '20000') }
  15.times do # longer than the lease
    sleep 0.1
    want(redis.call('LEASE', 'KEEPALIVE', lease), [1000], 'what is left')
  end
  want([redis.get(lock), redis.exists(key)], ['a', 1], 'what lives')
  want(redis.call('LEASE', 'REVOKE', lease), 1, 'the end')
  want(waits.value[0] > first, true, 'the tokens rise')
  want(redis.exists(key), 0, 'what lives after the end')
end

check 'ID: what is sent again through another node has the first reply' do
  lock = unique('lock')
  counter = unique('counter')
  id = unique('id')
  replies = Array.new(3) do |i|
    redis = connect(i)
    [redis.call('LOCK.ACQUIRE', lock, 'me', 'PX', '10000', 'WAIT', '1000', 'ID', "#{id}:l"),
     redis.call('INCREX', counter, 'EX', '60', 'ID', "#{id}:c")]
  end
  want(replies.uniq.size, 1, 'different replies')
  want(connect(0).get(counter), '1', 'the counter')
end

check 'WINDOW.HIT: of 40 calls at once on three nodes exactly 10 are allowed' do
  key = unique('window')
  allowed = together(40) { |i| connect(i).call('WINDOW.HIT', key, '10', 'PX', '60000')[0] }
  want(allowed.sum, 10, 'allowed')
end
