// load-publish and load-consume: automatic recovery with a list of addresses; nothing by hand.

import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.Address;
import com.rabbitmq.client.AlreadyClosedException;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.DefaultConsumer;
import com.rabbitmq.client.Envelope;
import com.rabbitmq.client.MessageProperties;
import com.rabbitmq.client.Recoverable;
import com.rabbitmq.client.RecoveryListener;
import com.rabbitmq.client.impl.recovery.TopologyRecoveryRetryLogic;
import java.io.IOException;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.NavigableMap;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

final class Load implements RecoveryListener {
    private static final long PATIENCE_MS = 1000;
    private static final int SIZE = 100;

    private final List<Address> addresses = new ArrayList<>();
    private final ConnectionFactory factory = new ConnectionFactory();
    private final String queue;
    private final String name;
    private final CountDownLatch stopped = new CountDownLatch(1);
    private final NavigableMap<Long, String> waiting = new TreeMap<>(); // by the channel's number
    private Channel publishing;
    private long answeredMs;
    private int life = 1;

    private Load(String urls, String queue, String name) throws Exception {
        for (String url : urls.split(",")) {
            URI uri = new URI(url);
            addresses.add(new Address(uri.getHost(), uri.getPort()));
        }
        this.queue = queue;
        this.name = name;
        factory.setRequestedHeartbeat(4);
        factory.setConnectionTimeout(1000);
        factory.setChannelRpcTimeout(2000);
        factory.setNetworkRecoveryInterval(100);
        // A queue whose node is down is not found until that is back.
        factory.setTopologyRecoveryRetryHandler(
                TopologyRecoveryRetryLogic.RETRY_ON_QUEUE_NOT_FOUND_RETRY_HANDLER
                        .retryAttempts(600)
                        .backoffPolicy(attempt -> Thread.sleep(100))
                        .build());
        Thread ear = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                    // Only the end means something.
                }
            } catch (IOException gone) {
                // That is the end as well.
            }
            stopped.countDown();
        });
        ear.setDaemon(true);
        ear.start();
    }

    static void main(String[] words) throws Exception {
        Load load = new Load(words[1], words[2], words[3]);
        if (words[0].equals("load-publish")) {
            load.publish(Integer.parseInt(words[4]), Integer.parseInt(words[5]));
        } else {
            load.consume();
        }
        load.say("end " + load.name);
        System.exit(0);
    }

    private static synchronized void print(String line) {
        byte[] bytes = line.getBytes(StandardCharsets.UTF_8);
        System.out.write(bytes, 0, bytes.length);
        System.out.flush();
    }

    private void say(String what) {
        print(System.currentTimeMillis() + " " + what + "\n");
    }

    private synchronized String identity() {
        return name + "." + life;
    }

    /** A life ends where the recovery of the next one begins. */
    @Override
    public void handleRecoveryStarted(Recoverable recovering) {
        synchronized (this) {
            waiting.values().forEach(one -> say("? " + one));
            waiting.clear();
            life++;
            answeredMs = System.currentTimeMillis();
        }
    }

    @Override
    public void handleRecovery(Recoverable recovered) {
        say("life " + identity());
    }

    private Connection connect() throws Exception {
        while (true) {
            Connection connection = null;
            try {
                connection = factory.newConnection(addresses);
                ((Recoverable) connection).addRecoveryListener(this);
                connection.createChannel().queueDeclare(queue, true, false, false, null);
                say("life " + identity());
                return connection;
            } catch (IOException | AlreadyClosedException notYet) {
                if (connection != null) {
                    connection.abort(500);
                }
                Thread.sleep(100);
            }
        }
    }

    /** What a connection that was given up still says counts for nothing: its numbers are others. */
    private synchronized void answered(
            Channel channel, String sign, long number, boolean multiple) {
        if (channel != publishing) {
            return;
        }
        answeredMs = System.currentTimeMillis();
        NavigableMap<Long, String> told =
                multiple ? waiting.headMap(number, true) : waiting.subMap(number, true, number, true);
        told.values().forEach(one -> say(sign + " " + one));
        told.clear();
    }

    private synchronized void send(Channel channel, int number) throws IOException {
        String one = identity() + ":" + number;
        long known = channel.getNextPublishSeqNo();
        if (waiting.isEmpty()) {
            answeredMs = System.currentTimeMillis();
        }
        waiting.put(known, one);
        StringBuilder body = new StringBuilder(one).append(' ');
        while (body.length() < SIZE) {
            body.append('.');
        }
        try {
            channel.basicPublish(
                    "", queue, MessageProperties.PERSISTENT_BASIC,
                    body.toString().getBytes(StandardCharsets.US_ASCII));
        } catch (AlreadyClosedException | IOException lost) {
            waiting.remove(known);
            say("? " + one);
            throw lost;
        }
    }

    private synchronized boolean hasRoom(int window) {
        return waiting.size() < window;
    }

    private synchronized boolean isImpatient() {
        return !waiting.isEmpty() && System.currentTimeMillis() - answeredMs > PATIENCE_MS;
    }

    private Channel confirming(Connection connection) throws IOException {
        Channel channel = connection.createChannel();
        channel.confirmSelect();
        channel.addConfirmListener(
                (number, multiple) -> answered(channel, "+", number, multiple),
                (number, multiple) -> answered(channel, "-", number, multiple));
        synchronized (this) {
            publishing = channel;
        }
        return channel;
    }

    private interface Opening {
        Channel open(Connection connection) throws IOException;
    }

    /** A channel of a connection that lasts until it is open. */
    private Channel opened(Opening opening) throws Exception {
        while (true) {
            Connection connection = connect();
            try {
                return opening.open(connection);
            } catch (IOException | AlreadyClosedException notYet) {
                connection.abort(500);
            }
        }
    }

    private void publish(int rate, int window) throws Exception {
        Channel channel = opened(this::confirming);
        int number = 0;
        long pauseMs = Math.max(1, 1000 / rate);
        while (!stopped.await(pauseMs, TimeUnit.MILLISECONDS)) {
            if (isImpatient()) {
                say("impatient " + identity());
                giveUp(channel.getConnection());
                channel = opened(this::confirming);
            }
            if (!hasRoom(window) || !channel.isOpen()) {
                continue;
            }
            try {
                send(channel, ++number);
            } catch (AlreadyClosedException | IOException lost) {
                // The recovery has begun, or is about to.
            }
        }
        long end = System.currentTimeMillis() + PATIENCE_MS;
        while (!hasRoom(1) && System.currentTimeMillis() < end) {
            Thread.sleep(10);
        }
        synchronized (this) {
            waiting.values().forEach(one -> say("? " + one));
        }
        channel.getConnection().abort(500);
    }

    /** No library finds out that a node only listens: the application calls another one. */
    private void giveUp(Connection former) {
        former.abort(500);
        synchronized (this) {
            publishing = null;
        }
        handleRecoveryStarted(null);
        addresses.add(addresses.remove(0));
    }

    private void consume() throws Exception {
        Channel channel = opened(this::consuming);
        stopped.await();
        channel.getConnection().abort(500);
    }

    private Channel consuming(Connection connection) throws IOException {
        Channel channel = connection.createChannel();
        channel.basicQos(Client.PREFETCH);
        channel.basicConsume(queue, false, new DefaultConsumer(channel) {
            @Override
            public void handleDelivery(
                    String tag, Envelope envelope, AMQP.BasicProperties properties, byte[] body)
                    throws IOException {
                String one = new String(body, StandardCharsets.US_ASCII).split(" ", 2)[0];
                say("* " + identity() + " " + one + (envelope.isRedeliver() ? " 1" : " 0"));
                try {
                    channel.basicAck(envelope.getDeliveryTag(), false);
                } catch (AlreadyClosedException lost) {
                    // It will be delivered again.
                }
            }
        });
        return channel;
    }
}
