# Work queue: tasks are shared among workers and survive a crash of worker or broker.
require 'bunny'

URL = ENV.fetch('AMQP_URL', 'amqp://guest:guest@127.0.0.1:5672/%2f')

def add(task)
  connection = Bunny.new(URL).start
  channel = connection.create_channel
  channel.confirm_select
  channel.queue('tasks', durable: true).publish(task, persistent: true)
  # until the task is on disk
  raise 'the broker refused the task' unless channel.wait_for_confirms

  puts "added #{task}"
  connection.close
end

def work
  connection = Bunny.new(URL).start
  channel = connection.create_channel
  channel.prefetch(1) # the next task after the acknowledgement of this one
  channel.queue('tasks', durable: true).subscribe(manual_ack: true) do |delivery, _properties, task|
    sleep task.count('.') # a second of work for each dot
    puts "done #{task}"
    channel.ack(delivery.delivery_tag)
  end
  puts 'waiting'
  sleep
end

role, task = ARGV
role == 'add' ? add(task) : work
