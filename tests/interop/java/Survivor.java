// Automatic recovery: everything is declared once, and the client brings it all back.

import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.AlreadyClosedException;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.DefaultConsumer;
import com.rabbitmq.client.Envelope;
import com.rabbitmq.client.Recoverable;
import com.rabbitmq.client.RecoveryListener;
import com.rabbitmq.client.ShutdownSignalException;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

final class Survivor {
    private final String queue;
    private final String exchange;
    private final int count;
    private final Set<Integer> received = ConcurrentHashMap.newKeySet();
    private final BlockingQueue<String> news = new LinkedBlockingQueue<>();
    private final AtomicInteger reconnects = new AtomicInteger();

    private Survivor(String queue, int count) {
        this.queue = queue;
        this.exchange = queue + "-x";
        this.count = count;
    }

    static Object survive(String url, String queue, int count) throws Exception {
        return new Survivor(queue, count).live(Client.connect(url, 60));
    }

    private Object live(Connection connection) throws Exception {
        ((Recoverable) connection).addRecoveryListener(new RecoveryListener() {
            @Override
            public void handleRecovery(Recoverable recovered) {
                reconnects.incrementAndGet();
            }

            @Override
            public void handleRecoveryStarted(Recoverable starting) {}
        });
        declare(connection);
        Channel channel = Client.confirming(connection);
        int confirmed = 0;
        while (confirmed < count) {
            if (!isConfirmed(channel, "job." + confirmed, confirmed)) {
                Thread.sleep(50);
                continue;
            }
            confirmed++;
            if (confirmed == 10) {
                System.out.println("started");
            } else if (confirmed == count / 2) {
                System.out.println("halfway");
            }
        }
        while (received.size() < count) {
            Thread.sleep(20);
        }
        String heard = null;
        while (heard == null) {
            // The private queue comes back last, under a new name.
            isConfirmed(channel, "news.end", count);
            heard = news.poll(500, TimeUnit.MILLISECONDS);
        }
        connection.close();
        return Map.of(
                "confirmed", confirmed,
                "received", received.size(),
                "reconnects", reconnects.get(),
                "news", heard);
    }

    private void declare(Connection connection) throws IOException {
        Channel channel = connection.createChannel();
        channel.exchangeDeclare(exchange, "topic", true);
        channel.queueDeclare(queue, true, false, false, null);
        channel.queueBind(queue, exchange, "job.#");
        String mine = channel.queueDeclare().getQueue();
        channel.queueBind(mine, exchange, "news.#");
        channel.basicQos(Client.PREFETCH);
        channel.basicConsume(queue, false, new DefaultConsumer(channel) {
            @Override
            public void handleDelivery(
                    String tag, Envelope envelope, AMQP.BasicProperties properties, byte[] body)
                    throws IOException {
                received.add(Integer.valueOf(new String(body, 0, 8, StandardCharsets.US_ASCII)));
                try {
                    channel.basicAck(envelope.getDeliveryTag(), false);
                } catch (AlreadyClosedException lost) {
                    // It will be delivered again.
                }
            }
        });
        channel.basicConsume(mine, true, new DefaultConsumer(channel) {
            @Override
            public void handleDelivery(
                    String tag, Envelope envelope, AMQP.BasicProperties properties, byte[] body) {
                news.add("the end");
            }
        });
    }

    private boolean isConfirmed(Channel channel, String key, int number) throws Exception {
        try {
            channel.basicPublish(
                    exchange, key, Client.properties(number), Client.body(number, 100));
            channel.waitForConfirmsOrDie(Client.CONFIRM_TIMEOUT_MS);
            return true;
        } catch (AlreadyClosedException | IOException lost) {
            return false;
        } catch (ShutdownSignalException lost) {
            return false;
        }
    }
}
