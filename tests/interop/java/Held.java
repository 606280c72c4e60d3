// A publisher with a BlockedListener: it says what it hears, and goes on when it may.

import com.rabbitmq.client.BlockedListener;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;

final class Held {
    private Held() {}

    static Object publish(String url, String queue, int times) throws Exception {
        Connection connection = Client.connect(url, 60);
        AtomicInteger freed = new AtomicInteger();
        connection.addBlockedListener(new BlockedListener() {
            @Override
            public void handleBlocked(String reason) {
                System.out.println("blocked " + reason);
            }

            @Override
            public void handleUnblocked() {
                System.out.println("unblocked");
                freed.incrementAndGet();
            }
        });
        Channel channel = Client.confirming(connection);
        channel.queueDeclare(queue, true, false, false, null);
        int count = 0;
        while (freed.get() < times) {
            channel.basicPublish("", queue, null, new byte[10]);
            count++;
            if (count == 1) {
                System.out.println("started");
            }
            Thread.sleep(20);
        }
        channel.waitForConfirmsOrDie(10_000);
        connection.close();
        return Map.of("confirmed", count);
    }
}
