# Remote procedure call: a request is a message that says where the reply goes.
require 'bunny'

URL = ENV.fetch('AMQP_URL', 'amqp://guest:guest@127.0.0.1:5672/%2f')
REPLIES = 'amq.rabbitmq.reply-to' # no queue: the broker passes replies to this channel

def fibonacci(n)
  a, b = 0, 1
  n.times { a, b = b, a + b }
  a
end

def serve
  connection = Bunny.new(URL).start
  channel = connection.create_channel
  channel.prefetch(1)
  channel.queue('rpc').subscribe(manual_ack: true) do |delivery, request, body|
    puts "asked for #{body}"
    channel.default_exchange.publish(fibonacci(Integer(body)).to_s,
                                     routing_key: request.reply_to,
                                     correlation_id: request.correlation_id)
    channel.ack(delivery.delivery_tag)
  end
  puts 'waiting'
  sleep
end

def call(n)
  connection = Bunny.new(URL).start
  channel = connection.create_channel
  answers = Queue.new
  replies = channel.queue(REPLIES, no_declare: true)
  replies.subscribe do |_delivery, properties, body| # before the request
    answers << body if properties.correlation_id == '1'
  end
  channel.default_exchange.publish(n, routing_key: 'rpc', reply_to: REPLIES, correlation_id: '1')
  puts "fibonacci(#{n}) = #{answers.pop}"
  connection.close
end

role, n = ARGV
role == 'call' ? call(n) : serve
