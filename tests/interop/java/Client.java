// com.rabbitmq:amqp-client in the conversation of CONVERSATION.md.

import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.AlreadyClosedException;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.DefaultConsumer;
import com.rabbitmq.client.Envelope;
import com.rabbitmq.client.GetResponse;
import com.rabbitmq.client.RpcClient;
import com.rabbitmq.client.RpcClientParams;
import com.rabbitmq.client.ShutdownSignalException;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Date;
import java.util.List;
import java.util.Map;
import java.util.StringJoiner;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

public class Client {
    static final int PREFETCH = 50;
    static final long CONFIRM_TIMEOUT_MS = 30_000;

    interface Act {
        void on(Channel channel) throws IOException;
    }

    static byte[] body(int number, int size) {
        byte[] head = String.format("%08d:", number).getBytes(StandardCharsets.US_ASCII);
        byte[] whole = Arrays.copyOf(head, Math.max(size, head.length));
        Arrays.fill(whole, head.length, whole.length, (byte) (number % 251));
        return whole;
    }

    static AMQP.BasicProperties properties(int number) {
        return new AMQP.BasicProperties.Builder()
                .deliveryMode(2)
                .contentType("text/plain")
                .messageId("m-" + number)
                .headers(Map.of(
                        "number", number,
                        "text", "grüße",
                        "flag", true,
                        "nested", Map.of("list", List.of(1, "two"))))
                .build();
    }

    static Connection connect(String url, int heartbeatSeconds) throws Exception {
        ConnectionFactory factory = new ConnectionFactory();
        factory.setUri(url);
        factory.setRequestedHeartbeat(heartbeatSeconds);
        factory.setNetworkRecoveryInterval(100);
        return factory.newConnection();
    }

    static Channel confirming(Connection connection) throws IOException {
        Channel channel = connection.createChannel();
        channel.confirmSelect();
        return channel;
    }

    static Object publish(String url, String queue, int from, int count, int size)
            throws Exception {
        Connection connection = connect(url, 60);
        Channel channel = confirming(connection);
        channel.queueDeclare(queue, true, false, false, null);
        for (int number = from; number < from + count; number++) {
            channel.basicPublish("", queue, properties(number), body(number, size));
        }
        channel.waitForConfirmsOrDie(CONFIRM_TIMEOUT_MS);
        connection.close();
        return Map.of("confirmed", count);
    }

    static Object consume(String url, String queue, int count) throws Exception {
        Connection connection = connect(url, 60);
        Channel channel = connection.createChannel();
        channel.basicQos(PREFETCH);
        List<Object> numbers = new ArrayList<>();
        MessageDigest hash = MessageDigest.getInstance("SHA-256");
        int[] redelivered = {0};
        AMQP.BasicProperties[] first = {null};
        CountDownLatch done = new CountDownLatch(1);
        channel.basicConsume(queue, false, new DefaultConsumer(channel) {
            @Override
            public void handleDelivery(
                    String tag, Envelope envelope, AMQP.BasicProperties properties, byte[] body)
                    throws IOException {
                String head = new String(body, 0, 8, StandardCharsets.US_ASCII);
                numbers.add(Integer.parseInt(head));
                hash.update(body);
                redelivered[0] += envelope.isRedeliver() ? 1 : 0;
                first[0] = first[0] == null ? properties : first[0];
                channel.basicAck(envelope.getDeliveryTag(), false);
                if (numbers.size() == count) {
                    done.countDown();
                }
            }
        });
        if (!done.await(60, TimeUnit.SECONDS)) {
            throw new IllegalStateException("only " + numbers.size() + " messages came");
        }
        channel.close();
        connection.close();
        StringBuilder hex = new StringBuilder();
        for (byte one : hash.digest()) {
            hex.append(String.format("%02x", one));
        }
        return Map.of(
                "numbers", numbers,
                "sha256", hex.toString(),
                "redelivered", redelivered[0],
                "properties", Map.of(
                        "delivery_mode", first[0].getDeliveryMode(),
                        "content_type", first[0].getContentType(),
                        "message_id", first[0].getMessageId(),
                        "headers", first[0].getHeaders()));
    }

    static Object offsetOf(String text) {
        switch (text.charAt(0)) {
            case '#': return Long.parseLong(text.substring(1));
            case '@': return new Date(1000 * Long.parseLong(text.substring(1)));
            default: return text;
        }
    }

    static Object stream(String url, String queue, String offset, int count, String tag)
            throws Exception {
        Connection connection = connect(url, 60);
        Channel channel = connection.createChannel();
        channel.basicQos(PREFETCH);
        Map<String, Object> arguments = new TreeMap<>();
        arguments.put("x-stream-offset", offsetOf(offset));
        if (!tag.isEmpty()) {
            arguments.put("x-stream-automatic-offset-tracking", true);
        }
        List<Object> offsets = new ArrayList<>();
        CountDownLatch done = new CountDownLatch(count);
        channel.basicConsume(queue, false, tag, false, false, arguments,
                new DefaultConsumer(channel) {
            @Override
            public void handleDelivery(
                    String ownTag, Envelope envelope, AMQP.BasicProperties properties, byte[] body)
                    throws IOException {
                if (done.getCount() > 0) {
                    offsets.add(properties.getHeaders().get("x-stream-offset"));
                    channel.basicAck(envelope.getDeliveryTag(), false);
                    done.countDown();
                }
            }
        });
        System.out.println("consuming");
        if (!done.await(60, TimeUnit.SECONDS)) {
            throw new IllegalStateException("only " + offsets.size() + " messages came");
        }
        channel.close();
        connection.close();
        return Map.of("offsets", offsets);
    }

    static Object mandatory(Channel channel, String queue) throws Exception {
        Map<String, Object> said = new TreeMap<>();
        channel.addReturnListener((code, text, exchange, key, properties, body) -> {
            said.put("code", code);
            said.put("text", text);
            said.put("key", key);
            said.put("body", new String(body, StandardCharsets.UTF_8));
        });
        channel.basicPublish("", queue + "-nobody", true, null, bytes("come back"));
        channel.waitForConfirmsOrDie(CONFIRM_TIMEOUT_MS);
        said.put("before_confirm", !said.isEmpty());
        return said;
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static GetResponse get(Channel channel, String queue, List<Object> seen) throws IOException {
        GetResponse got = channel.basicGet(queue, false);
        seen.add(new String(got.getBody(), StandardCharsets.UTF_8)
                + " " + got.getEnvelope().isRedeliver() + " " + got.getMessageCount());
        return got;
    }

    static Object settle(Channel channel, String queue) throws Exception {
        channel.queueDeclare(queue, true, false, false, null);
        for (String text : List.of("one", "two", "three")) {
            channel.basicPublish("", queue, null, bytes(text));
        }
        channel.waitForConfirmsOrDie(CONFIRM_TIMEOUT_MS);
        List<Object> seen = new ArrayList<>();
        long tag = get(channel, queue, seen).getEnvelope().getDeliveryTag();
        channel.basicNack(tag, false, true);
        tag = get(channel, queue, seen).getEnvelope().getDeliveryTag();
        channel.basicReject(tag, false);
        for (int i = 0; i < 2; i++) {
            tag = get(channel, queue, seen).getEnvelope().getDeliveryTag();
            channel.basicAck(tag, false);
        }
        seen.add(channel.basicGet(queue, false) == null ? "empty" : "more");
        return seen;
    }

    static Object bound(Channel channel, String queue) throws Exception {
        String up = queue + "-up";
        String down = queue + "-down";
        channel.exchangeDeclare(up, "topic", false, true, null);
        channel.exchangeDeclare(down, "fanout", false, true, null);
        channel.exchangeBind(down, up, "a.*");
        channel.queueBind(queue, down, "");
        channel.basicPublish(up, "a.b", null, bytes("through two"));
        channel.basicPublish(up, "b.b", null, bytes("nowhere"));
        channel.waitForConfirmsOrDie(CONFIRM_TIMEOUT_MS);
        return new String(channel.basicGet(queue, true).getBody(), StandardCharsets.UTF_8);
    }

    /** What the server closes a channel with. */
    static Object refusal(Connection connection, Act act) throws IOException {
        try {
            act.on(connection.createChannel());
        } catch (IOException error) {
            ShutdownSignalException cause = (ShutdownSignalException) error.getCause();
            AMQP.Channel.Close close = (AMQP.Channel.Close) cause.getReason();
            return Map.of("code", close.getReplyCode(), "text", close.getReplyText());
        }
        throw new IllegalStateException("the server did not refuse");
    }

    static Object behave(String url, String queue) throws Exception {
        Connection connection = connect(url, 1);
        Connection other = connect(url, 60);
        Channel channel = confirming(connection);
        Map<String, Object> said = new TreeMap<>();
        said.put("returned", mandatory(channel, queue));
        said.put("settled", settle(channel, queue));
        said.put("bound", bound(channel, queue));
        channel.queueDeclare(queue + "-mine", false, true, false, null);
        said.put("missing", refusal(connection, c -> c.queueDeclarePassive(queue + "-missing")));
        said.put("locked", refusal(other, c -> c.queueDeclarePassive(queue + "-mine")));
        Thread.sleep(2500);
        said.put("deleted", channel.queueDelete(queue).getMessageCount());
        other.close();
        connection.close();
        return said;
    }

    /** The client's own way of asking: direct reply-to, unless it is told of a queue. */
    static Object ask(String url, String queue, int count) throws Exception {
        Connection connection = connect(url, 60);
        RpcClient client = new RpcClient(new RpcClientParams()
                .channel(connection.createChannel())
                .exchange("")
                .routingKey(queue)
                .timeout(10_000));
        List<Object> answers = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            answers.add(client.stringCall("question " + number));
        }
        client.close();
        connection.close();
        return Map.of("answers", answers);
    }

    static Object cancelled(String url, String queue) throws Exception {
        Connection connection = connect(url, 60);
        Channel channel = connection.createChannel();
        CountDownLatch heard = new CountDownLatch(1);
        channel.basicConsume(queue, new DefaultConsumer(channel) {
            @Override
            public void handleCancel(String tag) {
                heard.countDown();
            }
        });
        System.out.println("consuming");
        heard.await();
        int messages = channel.queueDeclare(queue, true, false, false, null).getMessageCount();
        connection.close();
        return Map.of("messages", messages);
    }

    /** One connection for the whole time: it and its channel recover by themselves. */
    static Object endure(String url, String queue, int count) throws Exception {
        int[] reconnects = {0};
        Connection connection = connect(url, 60);
        Channel channel = confirming(connection);
        channel.queueDeclare(queue, true, false, false, null);
        ((com.rabbitmq.client.Recoverable) connection).addRecoveryListener(
                new com.rabbitmq.client.RecoveryListener() {
                    @Override
                    public void handleRecovery(com.rabbitmq.client.Recoverable recovered) {
                        reconnects[0]++;
                    }

                    @Override
                    public void handleRecoveryStarted(com.rabbitmq.client.Recoverable starting) {}
                });
        int confirmed = 0;
        while (confirmed < count) {
            try {
                channel.basicPublish("", queue, properties(confirmed), body(confirmed, 100));
                channel.waitForConfirmsOrDie(CONFIRM_TIMEOUT_MS);
                confirmed++;
                if (confirmed == 10) {
                    System.out.println("started");
                }
            } catch (AlreadyClosedException | IOException lost) {
                Thread.sleep(50);
            } catch (ShutdownSignalException lost) {
                Thread.sleep(50);
            }
        }
        connection.close();
        return Map.of("confirmed", confirmed, "reconnects", reconnects[0]);
    }

    /** JSON of maps, lists, numbers, booleans and anything else as text. */
    static String json(Object value) {
        if (value instanceof Map) {
            StringJoiner members = new StringJoiner(",", "{", "}");
            ((Map<?, ?>) value).forEach((key, member) ->
                    members.add(json(key.toString()) + ":" + json(member)));
            return members.toString();
        }
        if (value instanceof List) {
            StringJoiner items = new StringJoiner(",", "[", "]");
            ((List<?>) value).forEach(item -> items.add(json(item)));
            return items.toString();
        }
        if (value instanceof Number || value instanceof Boolean) {
            return value.toString();
        }
        return '"' + value.toString().replace("\\", "\\\\").replace("\"", "\\\"") + '"';
    }

    public static void main(String[] args) throws Exception {
        if (args[0].startsWith("load-")) {
            Load.main(args);
        }
        String word = args[0];
        String url = args[1];
        String queue = args[2];
        boolean isStream = word.equals("stream");
        int[] n = Arrays.stream(args).skip(isStream ? 4 : 3).limit(isStream ? 1 : args.length)
                .mapToInt(Integer::parseInt).toArray();
        Object said;
        switch (word) {
            case "publish": said = publish(url, queue, n[0], n[1], n[2]); break;
            case "consume": said = consume(url, queue, n[0]); break;
            case "stream":
                said = stream(url, queue, args[3], n[0], args.length > 5 ? args[5] : "");
                break;
            case "behave": said = behave(url, queue); break;
            case "ask": said = ask(url, queue, n[0]); break;
            case "cancelled": said = cancelled(url, queue); break;
            case "endure": said = endure(url, queue, n[0]); break;
            case "survive": said = Survivor.survive(url, queue, n[0]); break;
            case "held": said = Held.publish(url, queue, n[0]); break;
            default: throw new IllegalArgumentException("unknown word " + word);
        }
        byte[] line = (json(said) + "\n").getBytes(StandardCharsets.UTF_8);
        System.out.write(line, 0, line.length);
        System.out.flush();
        System.exit(0);
    }
}
