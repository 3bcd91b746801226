# A producer or a worker of a Sidekiq queue: ruby queue.rb produce|work NAME JOBS. Prints `put N`
# for a job that the library took and `ran N` for one that a worker began.
require 'sidekiq'

ROLE, NAME, JOBS = ARGV
ENV['REDIS_URL'] = "redis://#{ENV['COORDD_ADDR']}"
Sidekiq.logger.level = Logger::ERROR
$stdout.sync = true

class Count
  include Sidekiq::Worker
  def perform(n)
    puts "ran #{n}"
    sleep 0.02
  end
end

def produce
  n = 0
  while n < JOBS.to_i
    begin
      Sidekiq::Client.push('class' => Count, 'queue' => NAME, 'args' => [n], 'jid' => "job-#{n}")
    rescue StandardError => e
      warn "sidekiq add: #{e.message}"
      sleep 0.1
      next
    end
    puts "put #{n}"
    n += 1
    sleep 0.01
  end
end

case ROLE
when 'produce' then produce
when 'work' then exec('sidekiq', '--require', File.expand_path(__FILE__), '--concurrency', '1',
                      '--queue', NAME)
end
