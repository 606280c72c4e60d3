import java.net.URI;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.springframework.amqp.AmqpRejectAndDontRequeueException;
import org.springframework.amqp.core.Binding;
import org.springframework.amqp.core.BindingBuilder;
import org.springframework.amqp.core.Message;
import org.springframework.amqp.core.Queue;
import org.springframework.amqp.core.QueueBuilder;
import org.springframework.amqp.core.TopicExchange;
import org.springframework.amqp.rabbit.connection.CachingConnectionFactory;
import org.springframework.amqp.rabbit.connection.CorrelationData;
import org.springframework.amqp.rabbit.core.RabbitAdmin;
import org.springframework.amqp.rabbit.core.RabbitTemplate;
import org.springframework.amqp.rabbit.listener.DirectMessageListenerContainer;
import org.springframework.amqp.rabbit.listener.SimpleMessageListenerContainer;

/**
 * Spring's template, admin and listener containers, with quorum queues: App URI. Prints a line of
 * JSON: how many messages were confirmed, answered and handled at the second attempt, and the
 * dead letter.
 */
public class App {
  static final int COUNT = 50;

  public static void main(String[] arguments) throws Exception {
    CachingConnectionFactory factory = new CachingConnectionFactory(URI.create(arguments[0]));
    factory.setPublisherConfirmType(CachingConnectionFactory.ConfirmType.CORRELATED);
    factory.setPublisherReturns(true);
    RabbitTemplate template = new RabbitTemplate(factory);
    template.setMandatory(true);
    RabbitAdmin admin = new RabbitAdmin(factory);
    declare(admin);

    List<CorrelationData> published = new ArrayList<>();
    for (int number = 0; number < COUNT; number++) {
      CorrelationData data = new CorrelationData("m" + number);
      template.convertAndSend("spring.events", "orders.new", "order " + number, data);
      published.add(data);
    }
    int confirmed = 0;
    for (CorrelationData data : published) {
      if (data.getFuture().get(10, TimeUnit.SECONDS).isAck() && data.getReturned() == null) {
        confirmed++;
      }
    }

    CountDownLatch handled = new CountDownLatch(COUNT);
    Map<String, Boolean> seen = new ConcurrentHashMap<>();
    SimpleMessageListenerContainer orders = new SimpleMessageListenerContainer(factory);
    orders.setQueueNames("spring.orders");
    orders.setConcurrentConsumers(2);
    orders.setPrefetchCount(10);
    orders.setMessageListener(
        message -> {
          String text = new String(message.getBody());
          if (text.equals("order 49")) {
            throw new AmqpRejectAndDontRequeueException("never");
          }
          if (seen.putIfAbsent(text, true) == null) {
            throw new IllegalStateException("not at the first attempt");
          }
          handled.countDown();
        });
    orders.start();

    DirectMessageListenerContainer doubles = new DirectMessageListenerContainer(factory);
    doubles.setQueueNames("spring.doubles");
    doubles.setMessageListener(
        new org.springframework.amqp.rabbit.listener.adapter.MessageListenerAdapter(
            new Object() {
              public String handleMessage(String text) {
                return String.valueOf(2 * Integer.parseInt(text));
              }
            }));
    doubles.start();
    int answered = 0;
    for (int number = 0; number < COUNT; number++) {
      Object answer = template.convertSendAndReceive("", "spring.doubles", String.valueOf(number));
      if (String.valueOf(2 * number).equals(answer)) {
        answered++;
      }
    }

    template.setReceiveTimeout(20_000);
    Message letter = template.receive("spring.buried");
    long until = System.currentTimeMillis() + 20_000;
    while (handled.getCount() > 1 && System.currentTimeMillis() < until) {
      Thread.sleep(50);
    }
    Object deaths = letter == null ? null : letter.getMessageProperties().getXDeathHeader();
    System.out.printf(
        "{\"confirmed\": %d, \"answered\": %d, \"handled\": %d, \"letter\": \"%s\", \"died\": %b}%n",
        confirmed,
        answered,
        COUNT - handled.getCount(),
        letter == null ? "" : new String(letter.getBody()),
        deaths != null);
    doubles.stop();
    orders.stop();
    factory.destroy();
    System.exit(0);
  }

  static void declare(RabbitAdmin admin) {
    Queue orders =
        QueueBuilder.durable("spring.orders")
            .quorum()
            .deliveryLimit(5)
            .deadLetterExchange("")
            .deadLetterRoutingKey("spring.buried")
            .build();
    TopicExchange events = new TopicExchange("spring.events");
    Binding binding = BindingBuilder.bind(orders).to(events).with("orders.#");
    admin.declareQueue(orders);
    admin.declareExchange(events);
    admin.declareBinding(binding);
    admin.declareQueue(QueueBuilder.durable("spring.buried").quorum().build());
    admin.declareQueue(QueueBuilder.durable("spring.doubles").quorum().build());
  }
}
