// Remote procedure call: a request is a message that says where the reply goes.

import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

public class Rpc {
    static Connection connect() throws Exception {
        ConnectionFactory factory = new ConnectionFactory();
        String url = System.getenv("AMQP_URL");
        factory.setUri(url != null ? url : "amqp://guest:guest@127.0.0.1:5672/%2f");
        return factory.newConnection();
    }

    static final String REPLIES = "amq.rabbitmq.reply-to"; // no queue: the broker passes replies to this channel

    static long fibonacci(int n) {
        long a = 0;
        long b = 1;
        for (int i = 0; i < n; i++) {
            long next = a + b;
            a = b;
            b = next;
        }
        return a;
    }

    static void serve() throws Exception {
        Channel channel = connect().createChannel();
        channel.queueDeclare("rpc", false, false, false, null);
        channel.basicQos(1);
        channel.basicConsume("rpc", false, (tag, request) -> {
            String asked = new String(request.getBody(), StandardCharsets.UTF_8);
            System.out.println("asked for " + asked);
            AMQP.BasicProperties reply = new AMQP.BasicProperties.Builder()
                    .correlationId(request.getProperties().getCorrelationId()).build();
            byte[] answer = String.valueOf(fibonacci(Integer.parseInt(asked))).getBytes(StandardCharsets.UTF_8);
            channel.basicPublish("", request.getProperties().getReplyTo(), reply, answer);
            channel.basicAck(request.getEnvelope().getDeliveryTag(), false);
        }, tag -> { });
        System.out.println("waiting");
    }

    static void call(String n) throws Exception {
        try (Connection connection = connect(); Channel channel = connection.createChannel()) {
            CompletableFuture<String> answer = new CompletableFuture<>();
            channel.basicConsume(REPLIES, true, (tag, reply) -> { // before the request
                if (reply.getProperties().getCorrelationId().equals("1")) {
                    answer.complete(new String(reply.getBody(), StandardCharsets.UTF_8));
                }
            }, tag -> { });
            AMQP.BasicProperties request = new AMQP.BasicProperties.Builder()
                    .replyTo(REPLIES).correlationId("1").build();
            channel.basicPublish("", "rpc", request, n.getBytes(StandardCharsets.UTF_8));
            System.out.println("fibonacci(" + n + ") = " + answer.get(10, TimeUnit.SECONDS));
        }
    }

    public static void main(String[] words) throws Exception {
        if (words[0].equals("call")) {
            call(words[1]);
        } else {
            serve();
        }
    }
}
