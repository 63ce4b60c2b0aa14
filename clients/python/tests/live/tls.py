"""A real node over TLS, for both clients and both receivers."""

import asyncio
import ssl
import unittest

from chronos_client import After, AsyncClient, AsyncReceiver, Callback, ChronosError, Client
from chronos_client import Pop, Receiver, Timer

from . import ONCE, PATIENCE_S, PATIENT, Pops, nodes, until, variable

TIMER = Timer(After(3600), Callback("http://127.0.0.1:9/never", "x"))


def soon(port: int) -> Timer:
    """A timer whose callback goes over TLS."""
    uri = f"https://{variable('CHRONOS_RECEIVER_HOST')}:{port}/pop"
    return Timer(After(0.05), Callback(uri, "over TLS"))


def server_context() -> ssl.SSLContext:
    """The certificate of the receiver."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(variable("CHRONOS_CERT"), variable("CHRONOS_KEY"))
    return context


class Tls(unittest.TestCase):
    def test_a_node_of_the_authority_is_taken_and_no_other(self) -> None:
        token, ca_file = variable("CHRONOS_TOKEN"), variable("CHRONOS_CA")
        self.assertTrue(nodes()[0].startswith("https://"))
        pops = Pops()
        server = Receiver(pops, [variable("CHRONOS_SECRET")]).serve(
            variable("CHRONOS_RECEIVER_HOST"), 0, tls=server_context()
        )
        with server, Client(nodes(), token=token, ca_file=ca_file, retry=PATIENT) as client:
            self.assertEqual(client.get(client.create(TIMER).id).timer.timing, TIMER.timing)
            client.create(soon(server.port))
            until("the callback", lambda: pops.bodies() == ["over TLS"])
        with Client(nodes(), token=token, retry=ONCE) as client:
            with self.assertRaises(ChronosError) as caught:
                client.create(TIMER)
        self.assertIn("certificate", caught.exception.reason.lower())
        self.assertFalse(caught.exception.unconfirmed, "nothing was sent")

    def test_the_same_with_asyncio(self) -> None:
        token, ca_file = variable("CHRONOS_TOKEN"), variable("CHRONOS_CA")

        async def story() -> None:
            has_come = asyncio.Event()

            async def handle(pop: Pop) -> None:
                has_come.set()

            host, tls = variable("CHRONOS_RECEIVER_HOST"), server_context()
            server = await AsyncReceiver(handle, [variable("CHRONOS_SECRET")]).serve(
                host, 0, tls=tls
            )
            client = AsyncClient(nodes(), token=token, ca_file=ca_file, retry=PATIENT)
            async with server, client:
                written = await client.create(TIMER)
                self.assertEqual((await client.get(written.id)).timer.timing, TIMER.timing)
                await client.create(soon(server.port))
                await asyncio.wait_for(has_come.wait(), PATIENCE_S)
            async with AsyncClient(nodes(), token=token, retry=ONCE) as stranger:
                with self.assertRaises(ChronosError):
                    await stranger.create(TIMER)

        asyncio.run(story())
