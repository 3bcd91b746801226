# Repeats one round of checks: ruby service.rb actioncable|rack-attack. Prints `ok`, `failed WHY`
# (no service) or `wrong WHAT` (a broken promise) for each.
require 'logger'
require 'redis'

ADDRS = ENV['COORDD_ADDRS'].split(',')
$stdout.sync = true

class Wrong < StandardError; end

# Two servers on two nodes, with a subscriber each. The adapter would end its process when its
# connection is lost; the next round begins with new servers, as a supervisor would.
class Cable
  def initialize
    require 'active_support/all'
    require 'action_cable'
    @got = Queue.new
  end

  def open
    @servers = ADDRS.first(2).map do |addr|
      config = ActionCable::Server::Configuration.new
      config.cable = { 'adapter' => 'redis', 'url' => "redis://#{addr}" }.with_indifferent_access
      config.logger = Logger.new(nil)
      ActionCable::Server::Base.new(config: config)
    end
    @got = Queue.new
    got = @got
    subscribed = Queue.new
    @servers.each_with_index do |server, i|
      server.pubsub.subscribe('room', ->(message) { got << [i, message] }, -> { subscribed << i })
    end
    @servers.each { take(subscribed) }
  end

  # The message of this round comes once to each server, and no other with it.
  def round(n)
    open unless @servers
    @servers[n % 2].pubsub.broadcast('room', n.to_s)
    got = [take(@got), take(@got)]
    return if got.sort == [[0, n.to_s], [1, n.to_s]]

    raise Wrong, "round #{n} got #{got}"
  rescue Wrong
    raise
  rescue StandardError
    @servers = nil
    raise
  end

  def take(queue)
    100.times do
      return queue.pop(true) unless queue.empty?

      sleep 0.02
    end
    raise 'nothing came in two seconds'
  end
end

# Three servers on three nodes share the limit of three requests, and a ban.
class Attack
  LIMIT = 3

  def initialize
    require 'active_support'
    require 'rack'
    require 'rack/attack'
    @stores = ADDRS.map { |addr| Redis.new(url: "redis://#{addr}", reconnect_attempts: 0) }
    Rack::Attack.throttle('limit', limit: LIMIT, period: 10 * 86_400) { |r| r.params['caller'] }
    Rack::Attack.blocklist('ban') do |r|
      scraper = r.params['scraper']
      scraper && Rack::Attack::Allow2Ban.filter(scraper, maxretry: 1, findtime: 60, bantime: 3600) { true }
    end
    @app = Rack::MockRequest.new(Rack::Attack.new(->(_) { [200, {}, ['ok']] }))
    get(0, 'scraper=bad') # the first request of a scraper passes and bans it
  end

  def get(node, query)
    Rack::Attack.cache.store = @stores[node % 3]
    @app.get("/?#{query}").status
  end

  # Requests pass while the store cannot be reached: that is the library's choice.
  def round(n)
    statuses = Array.new(6) { |i| get(i, "caller=#{n}") }
    passed = statuses.count(200)
    banned = get(n, 'scraper=bad') == 403
    raise Wrong, "#{passed} requests passed, the limit is #{LIMIT}" if passed < LIMIT
    raise "#{passed} requests passed" if passed > LIMIT
    raise 'a banned caller passed' unless banned
  end
end

service = { 'actioncable' => Cable, 'rack-attack' => Attack }.fetch(ARGV[0]).new
n = 0
# The adapter's threads raise their errors here, at any time: only a round, or the pause after it,
# takes them.
Thread.handle_interrupt(StandardError => :never) do
  loop do
    n += 1
    begin
      Thread.handle_interrupt(StandardError => :immediate) do
        service.round(n)
        puts 'ok'
        sleep 0.05
      end
    rescue Wrong => e
      puts "wrong #{e.message}"
    rescue StandardError => e
      puts "failed #{e.class}: #{e.message.tr("\n", ' ')}"
      sleep 0.05
    end
  end
end
