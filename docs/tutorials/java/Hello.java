// Hello world: one program sends a message, another receives it.

import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import java.nio.charset.StandardCharsets;

public class Hello {
    static Connection connect() throws Exception {
        ConnectionFactory factory = new ConnectionFactory();
        String url = System.getenv("AMQP_URL");
        factory.setUri(url != null ? url : "amqp://guest:guest@127.0.0.1:5672/%2f");
        return factory.newConnection();
    }

    static void send(String text) throws Exception {
        try (Connection connection = connect(); Channel channel = connection.createChannel()) {
            channel.queueDeclare("hello", false, false, false, null);
            channel.basicPublish("", "hello", null, text.getBytes(StandardCharsets.UTF_8));
            System.out.println("sent " + text);
        }
    }

    static void receive() throws Exception {
        Channel channel = connect().createChannel();
        channel.queueDeclare("hello", false, false, false, null);
        boolean autoAck = true;
        channel.basicConsume("hello", autoAck, (tag, delivery) -> {
            String text = new String(delivery.getBody(), StandardCharsets.UTF_8);
            System.out.println("received " + text);
        }, tag -> { });
        System.out.println("waiting");
    }

    public static void main(String[] words) throws Exception {
        if (words[0].equals("send")) {
            send(words[1]);
        } else {
            receive();
        }
    }
}
