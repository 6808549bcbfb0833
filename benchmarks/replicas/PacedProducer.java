// Sends single records at a fixed rate, each at once, and prints the latencies in microseconds, one on each line. The records of a
// warm-up are not counted: the program is still cold.

import java.util.Properties;
import java.util.Random;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

public class PacedProducer {
    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1];
        int partitions = Integer.parseInt(arguments[2]);
        double perSecond = Double.parseDouble(arguments[3]);
        double warmUpSeconds = Double.parseDouble(arguments[4]);
        double seconds = Double.parseDouble(arguments[5]);
        byte[] value = new byte[Integer.parseInt(arguments[6])];
        new Random().nextBytes(value);
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("acks", "all");
        settings.put("linger.ms", "0");
        settings.put("key.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        ConcurrentLinkedQueue<Long> tookUs = new ConcurrentLinkedQueue<>();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings)) {
            producer.send(new ProducerRecord<>(topic, 0, null, value)).get();
            long began = System.nanoTime();
            long count = (long) (perSecond * (warmUpSeconds + seconds));
            for (long i = 0; i < count; i++) {
                long due = began + (long) (i * 1e9 / perSecond);
                long early = due - System.nanoTime();
                if (early > 0) Thread.sleep(early / 1_000_000, (int) (early % 1_000_000));
                boolean counts = i >= perSecond * warmUpSeconds;
                long sent = System.nanoTime();
                producer.send(new ProducerRecord<>(topic, (int) (i % partitions), null, value), (metadata, error) -> {
                    if (counts && error == null) tookUs.add((System.nanoTime() - sent) / 1_000);
                });
            }
        }
        for (long each : tookUs) System.out.println(each);
    }
}
