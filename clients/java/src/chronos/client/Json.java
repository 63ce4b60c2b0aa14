package chronos.client;

import java.math.BigDecimal;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Reads and writes JSON: maps, lists, texts, {@code BigDecimal}s, booleans and null. */
final class Json {
    /** Objects and arrays inside of each other: more than any answer of a node has. */
    private static final int DEPTH_MAX = 64;
    private static final int NUMBER_CHARACTERS_MAX = 40;

    private final String text;
    private int at;

    private Json(String text) {
        this.text = text;
    }

    /** Reads an object; throws {@code IllegalArgumentException} if the text is none. */
    static Map<String, Object> readObject(String text) {
        Json json = new Json(text);
        Object value = json.value(0);
        json.blanks();
        if (json.at != text.length() || !(value instanceof Map)) {
            throw json.wrong("one object");
        }
        return object(value);
    }

    @SuppressWarnings("unchecked")
    static Map<String, Object> object(Object value) {
        if (value instanceof Map) {
            return (Map<String, Object>) value;
        }
        throw new IllegalArgumentException("expected an object, got " + write(value));
    }

    @SuppressWarnings("unchecked")
    static List<Object> list(Object value) {
        if (value instanceof List) {
            return (List<Object>) value;
        }
        throw new IllegalArgumentException("expected an array, got " + write(value));
    }

    static String write(Object value) {
        StringBuilder out = new StringBuilder();
        write(value, out);
        return out.toString();
    }

    private static void write(Object value, StringBuilder out) {
        if (value instanceof String text) {
            writeText(text, out);
        } else if (value instanceof Map<?, ?> members) {
            String before = "{";
            for (Map.Entry<?, ?> member : members.entrySet()) {
                out.append(before);
                writeText((String) member.getKey(), out);
                out.append(':');
                write(member.getValue(), out);
                before = ",";
            }
            out.append(members.isEmpty() ? "{}" : "}");
        } else if (value instanceof List<?> items) {
            String before = "[";
            for (Object item : items) {
                out.append(before);
                write(item, out);
                before = ",";
            }
            out.append(items.isEmpty() ? "[]" : "]");
        } else if (value instanceof BigDecimal number) {
            out.append(number.toPlainString());
        } else {
            out.append(value);
        }
    }

    private static void writeText(String text, StringBuilder out) {
        out.append('"');
        for (int place = 0; place < text.length(); place++) {
            char character = text.charAt(place);
            if (character == '"' || character == '\\') {
                out.append('\\').append(character);
            } else if (character < 0x20) {
                out.append(String.format("\\u%04x", (int) character));
            } else {
                out.append(character);
            }
        }
        out.append('"');
    }

    private Object value(int depth) {
        if (depth > DEPTH_MAX) {
            throw wrong("at most " + DEPTH_MAX + " levels");
        }
        blanks();
        switch (peek()) {
            case '{':
                return members(depth);
            case '[':
                return items(depth);
            case '"':
                return quoted();
            case 't':
                return word("true", Boolean.TRUE);
            case 'f':
                return word("false", Boolean.FALSE);
            case 'n':
                return word("null", null);
            default:
                return number();
        }
    }

    private Map<String, Object> members(int depth) {
        Map<String, Object> members = new LinkedHashMap<>();
        at++;
        blanks();
        if (peek() == '}') {
            at++;
            return members;
        }
        while (true) {
            blanks();
            String name = quoted();
            blanks();
            take(':');
            members.put(name, value(depth + 1));
            blanks();
            if (peek() != ',') {
                take('}');
                return members;
            }
            at++;
        }
    }

    private List<Object> items(int depth) {
        List<Object> items = new ArrayList<>();
        at++;
        blanks();
        if (peek() == ']') {
            at++;
            return items;
        }
        while (true) {
            items.add(value(depth + 1));
            blanks();
            if (peek() != ',') {
                take(']');
                return items;
            }
            at++;
        }
    }

    private String quoted() {
        take('"');
        StringBuilder out = new StringBuilder();
        while (true) {
            char character = peek();
            at++;
            if (character == '"') {
                return out.toString();
            }
            if (character < 0x20) {
                throw wrong("a text without control characters");
            }
            out.append(character == '\\' ? escaped() : character);
        }
    }

    private char escaped() {
        char character = peek();
        at++;
        int plain = "\"\\/bfnrt".indexOf(character);
        if (plain >= 0) {
            return "\"\\/\b\f\n\r\t".charAt(plain);
        }
        if (character != 'u' || at + 4 > text.length()) {
            throw wrong("an escape");
        }
        int code = 0;
        for (int digit = 0; digit < 4; digit++, at++) {
            int value = Character.digit(text.charAt(at), 16);
            if (value < 0) {
                throw wrong("four hexadecimal digits");
            }
            code = code * 16 + value;
        }
        return (char) code;
    }

    private Object word(String word, Object value) {
        if (!text.startsWith(word, at)) {
            throw wrong(word);
        }
        at += word.length();
        return value;
    }

    private BigDecimal number() {
        int begin = at;
        while (at < text.length() && "+-.eE0123456789".indexOf(text.charAt(at)) >= 0) {
            at++;
        }
        String digits = text.substring(begin, at);
        if (digits.isEmpty() || digits.length() > NUMBER_CHARACTERS_MAX) {
            throw wrong("a value");
        }
        return new BigDecimal(digits);
    }

    private void blanks() {
        while (at < text.length() && " \t\r\n".indexOf(text.charAt(at)) >= 0) {
            at++;
        }
    }

    private char peek() {
        if (at >= text.length()) {
            throw wrong("more");
        }
        return text.charAt(at);
    }

    private void take(char expected) {
        if (peek() != expected) {
            throw wrong("`" + expected + "`");
        }
        at++;
    }

    private IllegalArgumentException wrong(String expected) {
        return new IllegalArgumentException("JSON at " + at + ": expected " + expected);
    }
}
