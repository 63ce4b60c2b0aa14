package chronos.client;

import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.util.Base64;
import java.util.List;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

/** Signatures of callbacks: the Standard Webhooks specification 1.0.0 (docs/security.md). */
final class Signatures {
    private static final String PREFIX = "whsec_";
    /** Signatures in a header that are looked at: two secrets sign at most. */
    private static final int SIGNATURES_MAX = 16;

    private Signatures() {}

    /** What is signed beside the body, and the signatures. */
    record Signed(String id, String timestamp, String signatures) {}

    /** The key of a secret: {@code whsec_} and the base64 of 24 to 64 bytes. */
    static byte[] key(String secret) {
        String text = secret.strip();
        byte[] key = new byte[0];
        if (text.startsWith(PREFIX)) {
            try {
                key = Base64.getDecoder().decode(text.substring(PREFIX.length()));
            } catch (IllegalArgumentException noBase64) {
                // Too short as well.
            }
        }
        if (key.length < 24 || key.length > 64) {
            throw new IllegalArgumentException(
                    "expected `whsec_` and the base64 of 24 to 64 bytes, got another secret");
        }
        return key;
    }

    /** The signature of a callback, as one word of the header. */
    static String sign(byte[] key, String id, String timestamp, byte[] body) {
        try {
            Mac mac = Mac.getInstance("HmacSHA256");
            mac.init(new SecretKeySpec(key, "HmacSHA256"));
            mac.update((id + "." + timestamp + ".").getBytes(StandardCharsets.US_ASCII));
            return "v1," + Base64.getEncoder().encodeToString(mac.doFinal(body));
        } catch (GeneralSecurityException missing) {
            throw new IllegalStateException("each JDK has HmacSHA256", missing);
        }
    }

    /** What is wrong with a callback; null if one of the keys has signed the callback. */
    static String fault(List<byte[]> keys, Signed signed, byte[] body, long nowS, long skewS) {
        if (signed.id == null || signed.timestamp == null || signed.signatures == null) {
            return "webhook-id, webhook-timestamp, webhook-signature: expected all three";
        }
        if (!signed.timestamp.matches("[0-9]{1,12}")) {
            return "webhook-timestamp: expected seconds since 1970";
        }
        // A dot would let two messages be signed alike.
        if (!signed.id.matches("[!-~&&[^.]]+")) {
            return "webhook-id: expected ASCII without dots";
        }
        if (Math.abs(nowS - Long.parseLong(signed.timestamp)) > skewS) {
            return "webhook-timestamp: expected the present, within the allowed difference";
        }
        // Every pair is compared, so that the time tells nothing of which secret fits.
        boolean isSigned = false;
        String[] words = signed.signatures.split(" ");
        for (byte[] key : keys) {
            byte[] good = bytes(sign(key, signed.id, signed.timestamp, body));
            for (int word = 0; word < Math.min(words.length, SIGNATURES_MAX); word++) {
                isSigned |= MessageDigest.isEqual(good, bytes(words[word]));
            }
        }
        return isSigned ? null : "webhook-signature: expected that of a secret known here";
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
