# Publish and subscribe: each receiver gets each message that is published while it runs.
require 'bunny'

URL = ENV.fetch('AMQP_URL', 'amqp://guest:guest@127.0.0.1:5672/%2f')

def emit(text)
  connection = Bunny.new(URL).start
  channel = connection.create_channel
  channel.fanout('logs').publish(text)
  puts "sent #{text}"
  connection.close
end

def receive
  connection = Bunny.new(URL).start
  channel = connection.create_channel
  exchange = channel.fanout('logs')
  queue = channel.queue('', exclusive: true) # the broker makes the name
  queue.bind(exchange)
  queue.subscribe do |_delivery, _properties, body|
    puts "received #{body}"
  end
  puts 'waiting'
  sleep
end

role, text = ARGV
role == 'emit' ? emit(text) : receive
