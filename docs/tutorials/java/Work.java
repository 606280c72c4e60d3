// Work queue: tasks are shared among workers and survive a crash of worker or broker.

import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.MessageProperties;
import java.nio.charset.StandardCharsets;

public class Work {
    static Connection connect() throws Exception {
        ConnectionFactory factory = new ConnectionFactory();
        String url = System.getenv("AMQP_URL");
        factory.setUri(url != null ? url : "amqp://guest:guest@127.0.0.1:5672/%2f");
        return factory.newConnection();
    }

    static void add(String task) throws Exception {
        try (Connection connection = connect(); Channel channel = connection.createChannel()) {
            channel.queueDeclare("tasks", true, false, false, null);
            channel.confirmSelect();
            channel.basicPublish("", "tasks", MessageProperties.PERSISTENT_BASIC,
                    task.getBytes(StandardCharsets.UTF_8));
            channel.waitForConfirmsOrDie(10_000); // the task is on disk
            System.out.println("added " + task);
        }
    }

    static void work() throws Exception {
        Channel channel = connect().createChannel();
        channel.queueDeclare("tasks", true, false, false, null);
        channel.basicQos(1); // the next task after the acknowledgement of this one
        channel.basicConsume("tasks", false, (tag, delivery) -> {
            String task = new String(delivery.getBody(), StandardCharsets.UTF_8);
            try {
                Thread.sleep(1000 * task.chars().filter(letter -> letter == '.').count()); // a second for each dot
            } catch (InterruptedException error) {
                return; // not acknowledged: another worker gets it
            }
            System.out.println("done " + task);
            channel.basicAck(delivery.getEnvelope().getDeliveryTag(), false);
        }, tag -> { });
        System.out.println("waiting");
    }

    public static void main(String[] words) throws Exception {
        if (words[0].equals("add")) {
            add(words[1]);
        } else {
            work();
        }
    }
}
