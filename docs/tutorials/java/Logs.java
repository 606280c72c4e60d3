// Publish and subscribe: each receiver gets each message that is published while it runs.

import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import java.nio.charset.StandardCharsets;

public class Logs {
    static Connection connect() throws Exception {
        ConnectionFactory factory = new ConnectionFactory();
        String url = System.getenv("AMQP_URL");
        factory.setUri(url != null ? url : "amqp://guest:guest@127.0.0.1:5672/%2f");
        return factory.newConnection();
    }

    static void emit(String text) throws Exception {
        try (Connection connection = connect(); Channel channel = connection.createChannel()) {
            channel.exchangeDeclare("logs", "fanout");
            channel.basicPublish("logs", "", null, text.getBytes(StandardCharsets.UTF_8));
            System.out.println("sent " + text);
        }
    }

    static void receive() throws Exception {
        Channel channel = connect().createChannel();
        channel.exchangeDeclare("logs", "fanout");
        String queue = channel.queueDeclare().getQueue(); // exclusive; the broker makes the name
        channel.queueBind(queue, "logs", "");
        channel.basicConsume(queue, true, (tag, delivery) -> {
            String text = new String(delivery.getBody(), StandardCharsets.UTF_8);
            System.out.println("received " + text);
        }, tag -> { });
        System.out.println("waiting");
    }

    public static void main(String[] words) throws Exception {
        if (words[0].equals("emit")) {
            emit(words[1]);
        } else {
            receive();
        }
    }
}
