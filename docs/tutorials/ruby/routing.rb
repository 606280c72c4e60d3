# Routing: a receiver names the severities that it wants.
require 'bunny'

URL = ENV.fetch('AMQP_URL', 'amqp://guest:guest@127.0.0.1:5672/%2f')

def emit(severity, text)
  connection = Bunny.new(URL).start
  channel = connection.create_channel
  channel.direct('logs-direct').publish(text, routing_key: severity)
  puts "sent #{severity} #{text}"
  connection.close
end

def receive(*severities)
  connection = Bunny.new(URL).start
  channel = connection.create_channel
  exchange = channel.direct('logs-direct')
  queue = channel.queue('', exclusive: true) # the broker makes the name
  severities.each { |severity| queue.bind(exchange, routing_key: severity) }
  queue.subscribe do |delivery, _properties, body|
    puts "received #{delivery.routing_key} #{body}"
  end
  puts 'waiting'
  sleep
end

role, *words = ARGV
role == 'emit' ? emit(*words) : receive(*words)
