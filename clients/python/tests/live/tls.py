"""A real node over TLS, for both clients."""

import asyncio
import unittest

from chronos_client import After, AsyncClient, Callback, ChronosError, Client, Timer

from . import ONCE, PATIENT, nodes, variable

TIMER = Timer(After(3600), Callback("http://127.0.0.1:9/never", "x"))


class Tls(unittest.TestCase):
    def test_a_node_of_the_authority_is_taken_and_no_other(self) -> None:
        token, ca_file = variable("CHRONOS_TOKEN"), variable("CHRONOS_CA")
        self.assertTrue(nodes()[0].startswith("https://"))
        with Client(nodes(), token=token, ca_file=ca_file, retry=PATIENT) as client:
            self.assertEqual(client.get(client.create(TIMER).id).timer.timing, TIMER.timing)
        with Client(nodes(), token=token, retry=ONCE) as client:
            with self.assertRaises(ChronosError) as caught:
                client.create(TIMER)
        self.assertIn("certificate", caught.exception.reason.lower())
        self.assertFalse(caught.exception.unconfirmed, "nothing was sent")

    def test_the_same_with_asyncio(self) -> None:
        token, ca_file = variable("CHRONOS_TOKEN"), variable("CHRONOS_CA")

        async def story() -> None:
            async with AsyncClient(nodes(), token=token, ca_file=ca_file, retry=PATIENT) as client:
                written = await client.create(TIMER)
                self.assertEqual((await client.get(written.id)).timer.timing, TIMER.timing)
            async with AsyncClient(nodes(), token=token, retry=ONCE) as client:
                with self.assertRaises(ChronosError):
                    await client.create(TIMER)

        asyncio.run(story())
