# Topics: a receiver names patterns of routing keys.
require 'bunny'

URL = ENV.fetch('AMQP_URL', 'amqp://guest:guest@127.0.0.1:5672/%2f')

def emit(key, text)
  connection = Bunny.new(URL).start
  channel = connection.create_channel
  channel.topic('logs-topic').publish(text, routing_key: key)
  puts "sent #{key} #{text}"
  connection.close
end

def receive(*patterns)
  connection = Bunny.new(URL).start
  channel = connection.create_channel
  exchange = channel.topic('logs-topic')
  queue = channel.queue('', exclusive: true) # the broker makes the name
  patterns.each { |pattern| queue.bind(exchange, routing_key: pattern) }
  queue.subscribe do |delivery, _properties, body|
    puts "received #{delivery.routing_key} #{body}"
  end
  puts 'waiting'
  sleep
end

role, *words = ARGV
role == 'emit' ? emit(*words) : receive(*words)
