// A Java client of timestamps over TLS, with nothing but what Java has: an SSLSocket, and the bytes
// of Thrift's binary protocol.
//
//     java Timestamps.java PORT CA CERT KEY CALLS
//
// CA, CERT and KEY are files in PEM; CERT may be `-` for a client that has no certificate. Prints
// the version of TLS, the first and the last value; ends with 1 if values do not increase or a call
// fails.

import java.io.DataInputStream;
import java.io.FileInputStream;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.PrivateKey;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.Base64;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSocket;
import javax.net.ssl.TrustManagerFactory;

public class Timestamps {
    private static final byte[] NAME = "getTimestamp".getBytes(StandardCharsets.US_ASCII);

    public static void main(String[] arguments) throws Exception {
        int port = Integer.parseInt(arguments[0]), calls = Integer.parseInt(arguments[4]);
        SSLContext context = context(arguments[1], arguments[2], arguments[3]);
        SSLSocket socket = (SSLSocket) context.getSocketFactory().createSocket("localhost", port);
        SSLParameters parameters = socket.getSSLParameters();
        parameters.setEndpointIdentificationAlgorithm("HTTPS");
        socket.setSSLParameters(parameters);
        socket.setSoTimeout(60_000);
        socket.startHandshake();
        DataInputStream in = new DataInputStream(socket.getInputStream());
        long first = 0, last = 0;
        for (int call = 1; call <= calls; call++) {
            ByteBuffer ask = ByteBuffer.allocate(4 + 4 + NAME.length + 4 + 1);
            ask.putInt(0x80010001).putInt(NAME.length).put(NAME).putInt(call).put((byte) 0);
            socket.getOutputStream().write(ask.array());
            long value = answer(in, call);
            if (value <= last) {
                throw new IllegalStateException(value + " after " + last);
            }
            first = call == 1 ? value : first;
            last = value;
        }
        System.out.println(socket.getSession().getProtocol() + " " + first + " " + last);
        socket.close();
    }

    private static long answer(DataInputStream in, int call) throws Exception {
        int head = in.readInt();
        byte[] name = in.readNBytes(in.readInt());
        int sequence = in.readInt();
        // A field of type I64 with number 0 is the result.
        if (head != 0x80010002 || sequence != call || in.readByte() != 10 || in.readShort() != 0) {
            throw new IllegalStateException("no reply to call " + call + " of " + new String(name));
        }
        long value = in.readLong();
        if (in.readByte() != 0) {
            throw new IllegalStateException("the reply goes on");
        }
        return value;
    }

    private static SSLContext context(String ca, String cert, String key) throws Exception {
        KeyStore trusted = KeyStore.getInstance(KeyStore.getDefaultType());
        trusted.load(null, null);
        trusted.setCertificateEntry("ca", certificate(ca));
        TrustManagerFactory trust = TrustManagerFactory.getInstance("PKIX");
        trust.init(trusted);
        KeyStore own = KeyStore.getInstance(KeyStore.getDefaultType());
        own.load(null, null);
        if (!cert.equals("-")) {
            own.setKeyEntry("own", key(key), new char[0], new Certificate[] {certificate(cert)});
        }
        KeyManagerFactory keys = KeyManagerFactory.getInstance("PKIX");
        keys.init(own, new char[0]);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(keys.getKeyManagers(), trust.getTrustManagers(), null);
        return context;
    }

    private static Certificate certificate(String path) throws Exception {
        try (InputStream in = new FileInputStream(path)) {
            return CertificateFactory.getInstance("X.509").generateCertificate(in);
        }
    }

    private static PrivateKey key(String path) throws Exception {
        String text = Files.readString(Path.of(path)).replaceAll("-----[A-Z ]+-----", "");
        byte[] bytes = Base64.getMimeDecoder().decode(text);
        return KeyFactory.getInstance("EC").generatePrivate(new PKCS8EncodedKeySpec(bytes));
    }
}
