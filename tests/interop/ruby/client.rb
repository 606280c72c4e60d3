# bunny in the conversation of CONVERSATION.md.
require 'bunny'
require 'digest'
require 'json'
require 'set'

$stdout.sync = true
PREFETCH = 50
REPLIES = 'amq.rabbitmq.reply-to'

def body(number, size)
  format('%08d:', number).b.ljust(size, (number % 251).chr)
end

def options(number)
  { persistent: true, content_type: 'text/plain', message_id: "m-#{number}",
    headers: { 'number' => number, 'text' => 'grüße', 'flag' => true,
               'nested' => { 'list' => [1, 'two'] } } }
end

# An error of the broker or the network is raised in the thread that connects.
def connect(url, **more)
  Bunny.new(url, automatically_recover: false, log_file: $stderr, **more).start
end

def confirming(connection)
  connection.create_channel.tap(&:confirm_select)
end

def confirm(channel)
  raise 'refused' unless channel.wait_for_confirms
end

def publish(url, queue, from, count, size)
  connection = connect(url)
  channel = confirming(connection)
  exchange = channel.default_exchange
  channel.queue(queue, durable: true)
  count.times do |nth|
    exchange.publish(body(from + nth, size), routing_key: queue, **options(from + nth))
  end
  confirm(channel)
  connection.close
  { confirmed: count }
end

# Takes COUNT messages, acknowledges each, and gives [redelivered, properties, body] of each.
# bunny drops what comes before it knows its consumer, so the tag is not the broker's.
def take(connection, queue, count, tag: nil, arguments: {})
  channel = connection.create_channel
  tag ||= channel.generate_consumer_tag
  channel.prefetch(PREFETCH)
  messages = []
  all = Queue.new
  channel.basic_consume(queue, tag, false, false, arguments) do |delivery, properties, content|
    next if messages.size == count

    messages << [delivery.redelivered?, properties.to_hash, content]
    channel.ack(delivery.delivery_tag)
    all << true if messages.size == count
  end
  yield if block_given?
  all.pop
  channel.close
  messages
end

def consume(url, queue, count)
  connection = connect(url)
  messages = take(connection, queue, count)
  connection.close
  bodies = messages.map(&:last)
  { numbers: bodies.map { |content| content[0, 8].to_i },
    sha256: Digest::SHA256.hexdigest(bodies.join),
    redelivered: messages.count(&:first),
    properties: messages.first[1] }
end

def stream(url, queue, offset, count, tag = nil)
  arguments = { 'x-stream-offset' => case offset[0]
                                     when '#' then offset[1..].to_i
                                     when '@' then Time.at(offset[1..].to_i)
                                     else offset
                                     end }
  arguments['x-stream-automatic-offset-tracking'] = true if tag
  connection = connect(url)
  messages = take(connection, queue, count.to_i, tag: tag, arguments: arguments) do
    puts 'consuming'
  end
  connection.close
  { offsets: messages.map { |_, properties, _| properties[:headers]['x-stream-offset'] } }
end

# What the broker closes a channel with.
def refusal(connection, queue)
  connection.create_channel.queue(queue, passive: true)
rescue Bunny::ChannelLevelException => e
  { code: e.channel_close.reply_code, text: e.channel_close.reply_text }
end

def mandatory(channel, queue, confirms)
  returned = nil
  exchange = channel.default_exchange
  exchange.on_return do |info, _properties, content|
    returned = { code: info.reply_code, text: info.reply_text, key: info.routing_key,
                 body: content, before_confirm: confirms.empty? }
  end
  exchange.publish('come back', routing_key: "#{queue}-nobody", mandatory: true)
  confirm(channel)
  returned
end

def settle(channel, queue)
  channel.queue(queue, durable: true)
  %w[one two three].each { |text| channel.default_exchange.publish(text, routing_key: queue) }
  confirm(channel)
  seen = []
  get = lambda do
    info, _properties, content = channel.basic_get(queue, manual_ack: true)
    seen << "#{content} #{info.redelivered} #{info.message_count}"
    info.delivery_tag
  end
  channel.nack(get.call, false, true)
  channel.reject(get.call, false)
  2.times { channel.ack(get.call) }
  seen << (channel.basic_get(queue).first.nil? ? 'empty' : 'more')
end

def bound(channel, queue)
  up = channel.topic("#{queue}-up", auto_delete: true)
  down = channel.fanout("#{queue}-down", auto_delete: true)
  down.bind(up, routing_key: 'a.*')
  channel.queue(queue, durable: true).bind(down)
  up.publish('through two', routing_key: 'a.b')
  up.publish('nowhere', routing_key: 'b.b')
  confirm(channel)
  channel.basic_get(queue, manual_ack: false).last
end

def behave(url, queue)
  connection = connect(url, heartbeat: 1)
  other = connect(url)
  channel = connection.create_channel
  confirms = Queue.new
  channel.confirm_select(->(tag, _multiple, _nack) { confirms << tag })
  result = { returned: mandatory(channel, queue, confirms), settled: settle(channel, queue),
             bound: bound(channel, queue) }
  channel.queue("#{queue}-mine", exclusive: true)
  result[:missing] = refusal(connection, "#{queue}-missing")
  result[:locked] = refusal(other, "#{queue}-mine")
  sleep 2.5
  result[:deleted] = channel.queue_delete(queue).message_count
  [other, connection].each(&:close)
  result
end

# Sends all its requests first; the answers may come in any order.
def ask(url, queue, count)
  connection = connect(url)
  channel = connection.create_channel
  heard = Queue.new
  channel.queue(REPLIES, no_declare: true).subscribe do |_delivery, properties, content|
    heard << [properties.correlation_id.to_i, content]
  end
  count.times do |number|
    channel.default_exchange.publish("question #{number}", routing_key: queue, reply_to: REPLIES,
                                                           correlation_id: number.to_s)
  end
  answers = Array.new(count) { heard.pop }.sort.map(&:last)
  connection.close
  { answers: answers }
end

def endure(url, queue, count)
  confirmed = 0
  reconnects = -1
  life = lambda do
    connection = connect(url)
    reconnects += 1
    channel = confirming(connection)
    channel.queue(queue, durable: true)
    while confirmed < count
      channel.basic_publish(body(confirmed, 100), '', queue, options(confirmed))
      confirm(channel)
      confirmed += 1
      puts 'started' if confirmed == 10
    end
    connection.close
  end
  until confirmed == count
    begin
      thread = Thread.new(&life)
      thread.report_on_exception = false
      thread.join
    rescue Bunny::Exception, SystemCallError, IOError
      sleep 0.05
    end
  end
  { confirmed: confirmed, reconnects: reconnects }
end

# Automatic recovery: everything is declared once, and bunny brings it all back.
class Survivor
  def initialize(url, queue, count)
    @url = url
    @queue = queue
    @count = count
    @reconnects = 0
    @received = Set.new
    @news = Queue.new
    @settled = Queue.new # true for a confirm, false when the connection is another one
  end

  def live
    connection = Bunny.new(@url, network_recovery_interval: 0.1,
                                 recovery_completed: method(:recovered),
                                 log_file: $stderr, log_level: Logger::ERROR).start
    exchange = declare(connection.create_channel)
    channel = connection.create_channel
    channel.confirm_select(->(_tag, _multiple, nack) { @settled << !nack })
    @count.times do |number|
      certainly(channel, exchange, "job.#{number}", body(number, 100), **options(number))
      puts 'started' if number == 9
      puts 'halfway' if number + 1 == @count / 2
    end
    sleep 0.02 until @received.size == @count
    certainly(channel, exchange, 'news.end', 'the end')
    news = @news.pop
    connection.close
    { confirmed: @count, received: @received.size, reconnects: @reconnects, news: news }
  end

  private

  def recovered
    @reconnects += 1
    @settled << false
  end

  def declare(channel)
    channel.prefetch(PREFETCH)
    exchange = channel.topic("#{@queue}-x", durable: true)
    jobs = channel.queue(@queue, durable: true).bind(exchange, routing_key: 'job.#')
    mine = channel.queue('', exclusive: true).bind(exchange, routing_key: 'news.#')
    jobs.subscribe(manual_ack: true) do |delivery, _properties, content|
      @received << content[0, 8].to_i
      channel.ack(delivery.delivery_tag)
    end
    mine.subscribe { |_delivery, _properties, content| @news << content }
    exchange.name
  end

  def certainly(channel, exchange, key, content, **more)
    loop do
      @settled.clear
      channel.basic_publish(content, exchange, key, more)
      return if @settled.pop
    rescue Bunny::Exception, SystemCallError, IOError
      sleep 0.02
    end
  end
end

def survive(url, queue, count)
  Survivor.new(url, queue, count).live
end

# A publisher that says when it is blocked, and goes on when it may.
def held(url, queue, times)
  connection = connect(url)
  freed = 0
  connection.on_blocked { |blocked| puts "blocked #{blocked.reason}" }
  connection.on_unblocked do
    puts 'unblocked'
    freed += 1
  end
  channel = confirming(connection)
  channel.queue(queue, durable: true)
  count = 0
  until freed == times
    channel.default_exchange.publish('x', routing_key: queue)
    count += 1
    puts 'started' if count == 1
    sleep 0.02
  end
  confirm(channel)
  connection.close
  { confirmed: count }
end

def cancelled(url, queue)
  connection = connect(url)
  heard = Queue.new
  channel = connection.create_channel
  consumer = Bunny::Consumer.new(channel, queue)
  consumer.on_cancellation { |cancel| heard << cancel }
  channel.basic_consume_with(consumer)
  puts 'consuming'
  heard.pop
  messages = channel.queue(queue, durable: true).message_count
  connection.close
  { messages: messages }
end

word, url, queue, *rest = ARGV
rest = rest.map(&:to_i) unless word == 'stream'
puts JSON.generate(send(word, url, queue, *rest))
