# Hello world: one program sends a message, another receives it.
require 'bunny'

URL = ENV.fetch('AMQP_URL', 'amqp://guest:guest@127.0.0.1:5672/%2f')

def send_message(text)
  connection = Bunny.new(URL).start
  channel = connection.create_channel
  channel.queue('hello')
  channel.default_exchange.publish(text, routing_key: 'hello')
  puts "sent #{text}"
  connection.close
end

def receive
  connection = Bunny.new(URL).start
  channel = connection.create_channel
  channel.queue('hello').subscribe do |_delivery, _properties, body|
    puts "received #{body}"
  end
  puts 'waiting'
  sleep
end

role, text = ARGV
role == 'send' ? send_message(text) : receive
