// Topics: a receiver names patterns of routing keys.

import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

public class Topics {
    static Connection connect() throws Exception {
        ConnectionFactory factory = new ConnectionFactory();
        String url = System.getenv("AMQP_URL");
        factory.setUri(url != null ? url : "amqp://guest:guest@127.0.0.1:5672/%2f");
        return factory.newConnection();
    }

    static void emit(String key, String text) throws Exception {
        try (Connection connection = connect(); Channel channel = connection.createChannel()) {
            channel.exchangeDeclare("logs-topic", "topic");
            channel.basicPublish("logs-topic", key, null, text.getBytes(StandardCharsets.UTF_8));
            System.out.println("sent " + key + " " + text);
        }
    }

    static void receive(String[] words) throws Exception {
        Channel channel = connect().createChannel();
        channel.exchangeDeclare("logs-topic", "topic");
        String queue = channel.queueDeclare().getQueue(); // exclusive; the broker makes the name
        for (String pattern : words) {
            channel.queueBind(queue, "logs-topic", pattern);
        }
        channel.basicConsume(queue, true, (tag, delivery) -> {
            String text = new String(delivery.getBody(), StandardCharsets.UTF_8);
            System.out.println("received " + delivery.getEnvelope().getRoutingKey() + " " + text);
        }, tag -> { });
        System.out.println("waiting");
    }

    public static void main(String[] words) throws Exception {
        if (words[0].equals("emit")) {
            emit(words[1], words[2]);
        } else {
            receive(Arrays.copyOfRange(words, 1, words.length));
        }
    }
}
