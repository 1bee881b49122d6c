#include "volume_spin.h"

void volume_spin_busy(struct volume_spin *spin)
{
    spin->idle_ns = 0;
}

bool volume_spin_again(struct volume_spin *spin, uint64_t now)
{
    if (spin->idle_ns == 0) {
        spin->idle_ns = spin->looked_ns = now;
        return spin->window_ns > 0 && now >= spin->quiet_ns;
    }
    if (now - spin->looked_ns > VOLUME_SPIN_STOLEN_NS) {
        spin->quiet_ns = now + VOLUME_SPIN_QUIET_NS;
        spin->window_ns = 0;
    }
    spin->looked_ns = now;
    return now >= spin->quiet_ns && now - spin->idle_ns < spin->window_ns;
}

void volume_spin_woken(struct volume_spin *spin, uint64_t now)
{
    uint64_t idle_ns = spin->idle_ns;
    spin->idle_ns = 0;
    if (idle_ns == 0 || now < spin->quiet_ns)
        return;
    if (now - idle_ns > VOLUME_SPIN_MAX_NS) {
        spin->window_ns /= 2;
        if (spin->window_ns < VOLUME_SPIN_FIRST_NS)
            spin->window_ns = 0;
        return;
    }
    spin->window_ns *= 2;
    if (spin->window_ns < VOLUME_SPIN_FIRST_NS)
        spin->window_ns = VOLUME_SPIN_FIRST_NS;
    if (spin->window_ns > VOLUME_SPIN_MAX_NS)
        spin->window_ns = VOLUME_SPIN_MAX_NS;
}
