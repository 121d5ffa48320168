/* Groups of devices: quick_groups.py in C. */

#include "walks.h"

#include <string.h>

#define NODES_TRIED 4
#define TIMES_TRIED 5
#define PPM 1000000

static int64_t scale_up(int64_t value, int64_t ppm)
{
    return (int64_t)(((__int128)value * ppm + PPM - 1) / PPM);
}

static int32_t free_by(const Walker *w, int32_t node, int64_t when_us)
{
    const int64_t *row = w->free_us + (int64_t)node * w->problem->widest;
    int32_t size = w->problem->nodes[node].size, count = 0;
    while (count < size && row[count] <= when_us)
        count++;
    return count;
}

/* The devices of some slots of a node. */
static Mask mask_of(const Walker *w, int32_t node, int32_t from, int32_t to)
{
    const uint8_t *row = w->device + (int64_t)node * w->problem->widest;
    Mask mask = 0;
    for (int32_t k = from; k < to; k++)
        mask |= (Mask)1 << row[k];
    return mask;
}

void occupy(Walker *w, int32_t node, Mask mask, int64_t end_us)
{
    const int32_t size = w->problem->nodes[node].size;
    int64_t *row = w->free_us + (int64_t)node * w->problem->widest;
    uint8_t *device = w->device + (int64_t)node * w->problem->widest;
    int32_t kept = 0;
    for (int32_t k = 0; k < size; k++)
        if (!(mask >> device[k] & 1)) {
            row[kept] = row[k];
            device[kept++] = device[k];
        }
    while (mask) {
        const uint8_t d = (uint8_t)__builtin_ctzll(mask);
        int32_t k = kept++;
        mask &= mask - 1;
        for (; k > 0 && (row[k - 1] > end_us || (row[k - 1] == end_us && device[k - 1] > d)); k--) {
            row[k] = row[k - 1];
            device[k] = device[k - 1];
        }
        row[k] = end_us;
        device[k] = d;
    }
}

/* A group of a node from the time on at which the node is free for it and the task is ready. */
static void at_node(Walker *w, int32_t node, int64_t ready_us, const Mode *mode, Offer *out)
{
    const int64_t *row = w->free_us + (int64_t)node * w->problem->widest;
    const int32_t degree = mode->degree;
    const int64_t start_us = row[degree - 1] > ready_us ? row[degree - 1] : ready_us;
    const int32_t upto = free_by(w, node, start_us);
    int64_t sum_us = 0;
    for (int32_t k = upto - degree; k < upto; k++)
        sum_us += row[k];
    out->start_us = start_us;
    out->span_us = mode->duration_us;
    out->waste_us = degree * start_us - sum_us;
    out->size = 1;
    out->node[0] = node;
    out->mask[0] = mask_of(w, node, upto - degree, upto);
}

/* The node where a task starts first; of several one that has had enough room last. */
static int on_node(Walker *w, int64_t ready_us, const Mode *mode, Offer *out)
{
    const Problem *p = w->problem;
    const int32_t degree = mode->degree, widest = p->widest;
    int64_t first_us = NEVER_US, last_us = -1;
    int32_t first_device = 0, last_device = -1, first = -1, last = -1;
    for (int32_t x = w->first_of_kind[mode->kind]; x < w->first_of_kind[mode->kind + 1]; x++) {
        const int32_t n = w->nodes_of_kind[x];
        if (p->nodes[n].size < degree)
            continue;
        const int64_t at = (int64_t)n * widest + degree - 1;
        const int64_t us = w->free_us[at];
        const int32_t d = w->device[at];
        if (us < first_us || (us == first_us && d < first_device)) {
            first_us = us;
            first_device = d;
            first = n;
        }
        if (us <= ready_us && (us > last_us || (us == last_us && d > last_device))) {
            last_us = us;
            last_device = d;
            last = n;
        }
    }
    if (first < 0)
        return 0;
    at_node(w, first_us < ready_us ? last : first, ready_us, mode, out);
    return 1;
}

/* Devices on equal NIC groups of each node; 0 where the degree does not fit so. */
static int align(
    const Walker *w, const Room *const *chosen, int32_t count, int32_t degree, Mask *masks)
{
    const Problem *p = w->problem;
    struct {
        int32_t total, nic;
    } shared[64];
    Mask free_masks[count];
    int32_t found = 0, total = 0, used = 0;
    for (int32_t k = 0; k < count; k++)
        free_masks[k] = mask_of(w, chosen[k]->node, 0, chosen[k]->size);
    for (int32_t nic = 0; nic < p->nic_count; nic++) {
        int32_t sum = 0, k = 0;
        for (; k < count; k++) {
            const Mask part = free_masks[k] & p->rails[chosen[k]->node * p->nic_count + nic];
            if (!part)
                break;
            sum += __builtin_popcountll(part);
        }
        if (k < count)
            continue;
        int32_t at = found++;
        for (; at > 0 && shared[at - 1].total < sum; at--)
            shared[at] = shared[at - 1];
        shared[at].total = sum;
        shared[at].nic = nic;
    }
    while (used < found && total < degree)
        total += shared[used++].total;
    if (total < degree || used * count > degree)
        return 0;
    /* One device of each NIC group on each node first: they decide the overlap. */
    memset(masks, 0, sizeof(Mask) * count);
    for (int32_t r = 0; r < used; r++)
        for (int32_t k = 0; k < count; k++) {
            const Mask part =
                free_masks[k] & p->rails[chosen[k]->node * p->nic_count + shared[r].nic];
            masks[k] |= part & -part;
        }
    int32_t left = degree - used * count;
    for (int32_t r = 0; r < used && left; r++)
        for (int32_t k = 0; k < count && left; k++) {
            Mask spare = free_masks[k] & p->rails[chosen[k]->node * p->nic_count + shared[r].nic];
            spare &= spare - 1;
            while (spare && left) {
                masks[k] |= spare & -spare;
                spare &= spare - 1;
                left--;
            }
        }
    return 1;
}

static void sort_group(Offer *group)
{
    for (int32_t k = 1; k < group->size; k++) {
        const int32_t node = group->node[k];
        const Mask mask = group->mask[k];
        int32_t at = k;
        for (; at > 0 && group->node[at - 1] > node; at--) {
            group->node[at] = group->node[at - 1];
            group->mask[at] = group->mask[at - 1];
        }
        group->node[at] = node;
        group->mask[at] = mask;
    }
}

/* Tries some nodes: count of them, as combinations of the first ones in order. */
static int aligned_of_count(
    const Walker *w, int32_t room_count, int32_t count, int32_t degree, Offer *out)
{
    const int32_t among_most = count > NODES_TRIED ? count : NODES_TRIED;
    const int32_t among = room_count < among_most ? room_count : among_most;
    if (count > among)
        return 0;
    int32_t at[count];
    const Room *chosen[count];
    for (int32_t k = 0; k < count; k++)
        at[k] = k;
    for (;;) {
        int32_t total = 0;
        for (int32_t k = 0; k < count; k++) {
            chosen[k] = &w->rooms[at[k]];
            total += chosen[k]->size;
        }
        if (total >= degree && align(w, chosen, count, degree, out->mask)) {
            out->size = count;
            for (int32_t k = 0; k < count; k++)
                out->node[k] = chosen[k]->node;
            sort_group(out);
            return 1;
        }
        if (count > NODES_TRIED)
            return 0;
        int32_t k = count - 1;
        while (k >= 0 && at[k] == among - count + k)
            k--;
        if (k < 0)
            return 0;
        at[k]++;
        for (k++; k < count; k++)
            at[k] = at[k - 1] + 1;
    }
}

/* A group among the devices free at a time; whether its NIC groups are aligned. */
static int free_group(Walker *w, const Mode *mode, int64_t start_us, Offer *out)
{
    int32_t room_count = 0, total = 0, least = 0;
    for (int32_t x = w->first_of_kind[mode->kind]; x < w->first_of_kind[mode->kind + 1]; x++) {
        const int32_t n = w->nodes_of_kind[x], size = free_by(w, n, start_us);
        if (!size)
            continue;
        int32_t at = room_count++;
        for (; at > 0 && w->rooms[at - 1].size < size; at--)
            w->rooms[at] = w->rooms[at - 1];
        w->rooms[at].size = size;
        w->rooms[at].node = n;
    }
    for (; least < room_count && total < mode->degree; least++)
        total += w->rooms[least].size;
    if (least < 2)
        least = 2;
    for (int32_t count = least; count <= least + 1; count++)
        if (aligned_of_count(w, room_count, count, mode->degree, out))
            return 1;
    /* Devices of the emptiest nodes, whatever their NIC groups. */
    int32_t left = mode->degree;
    out->size = 0;
    for (int32_t r = 0; left && r < room_count; r++) {
        const Room *room = &w->rooms[r];
        const int32_t count = left < room->size ? left : room->size;
        out->node[out->size] = room->node;
        out->mask[out->size++] = mask_of(w, room->node, room->size - count, room->size);
        left -= count;
    }
    sort_group(out);
    return 0;
}

static int64_t span_us(const Walker *w, const Mode *mode, const Offer *group)
{
    const Problem *p = w->problem;
    Mask shared = ~(Mask)0;
    int32_t widest = 0;
    if (group->size < 2)
        return mode->duration_us;
    for (int32_t k = 0; k < group->size; k++) {
        const Node *node = &p->nodes[group->node[k]];
        Mask nics = 0;
        for (Mask left = group->mask[k]; left; left &= left - 1)
            nics |= (Mask)1 << node->nic[__builtin_ctzll(left)];
        shared &= nics;
        if (__builtin_popcountll(nics) > widest)
            widest = __builtin_popcountll(nics);
    }
    const int64_t ppm = p->ppm[__builtin_popcountll(shared) * (p->nic_count + 1) + widest];
    return scale_up(mode->duration_us, ppm);
}

/* The value with so many below or equal to it, by quickselect; disturbs the order. */
static int64_t nth_us(int64_t *us, int32_t count, int32_t nth)
{
    int32_t low = 0, high = count - 1;
    while (low < high) {
        const int64_t pivot = us[(low + high) / 2];
        int32_t i = low, j = high;
        while (i <= j) {
            while (us[i] < pivot)
                i++;
            while (us[j] > pivot)
                j--;
            if (i <= j) {
                const int64_t kept = us[i];
                us[i++] = us[j];
                us[j--] = kept;
            }
        }
        if (nth <= j)
            high = j;
        else if (nth >= i)
            low = i;
        else
            break;
    }
    return us[nth];
}

/* The next time after one at which more devices are free, of a degree at least. */
static int64_t next_start_us(Walker *w, const Mode *mode, int64_t after_us, int *known)
{
    const Problem *p = w->problem;
    const int32_t from = w->first_of_kind[mode->kind], to = w->first_of_kind[mode->kind + 1];
    int64_t found = NEVER_US;
    if (!*known) {
        int32_t count = 0;
        for (int32_t x = from; x < to; x++) {
            const int32_t n = w->nodes_of_kind[x];
            memcpy(
                w->pool_us + count, w->free_us + (int64_t)n * p->widest,
                sizeof(int64_t) * p->nodes[n].size);
            count += p->nodes[n].size;
        }
        *known = 1;
        found = nth_us(w->pool_us, count, mode->degree - 1);
        if (found > after_us)
            return found;
        found = NEVER_US;
    }
    for (int32_t x = from; x < to; x++) {
        const int32_t n = w->nodes_of_kind[x];
        const int64_t *row = w->free_us + (int64_t)n * p->widest;
        for (int32_t k = 0; k < p->nodes[n].size; k++)
            if (row[k] > after_us) {
                if (row[k] < found)
                    found = row[k];
                break;
            }
    }
    return found;
}

/* Devices free by a time, or before it where that is asked. */
static int32_t free_in_all(const Walker *w, const Mode *mode, int64_t when_us)
{
    int32_t total = 0;
    for (int32_t x = w->first_of_kind[mode->kind]; x < w->first_of_kind[mode->kind + 1]; x++)
        total += free_by(w, w->nodes_of_kind[x], when_us);
    return total;
}

static void swap_offers(Offer *a, Offer *b)
{
    const Offer kept = *a;
    *a = *b;
    *b = kept;
}

/* The best group over several nodes that ends before a time, left in w->wide; whether any does. */
static int across(Walker *w, int64_t ready_us, const Mode *mode, int64_t before_us)
{
    const Problem *p = w->problem;
    const int64_t quickest_us = mode->quickest_us, least_us = before_us - quickest_us;
    int found = 0, known = 0;
    int64_t start_us = ready_us;
    if (free_in_all(w, mode, ready_us) < mode->degree) {
        if (free_in_all(w, mode, least_us - 1) < mode->degree)
            return 0;
        start_us = next_start_us(w, mode, ready_us, &known);
        if (start_us >= least_us)
            return 0;
    }
    for (int32_t tried = 0;; tried++) {
        if (before_us < NEVER_US && tried >= TIMES_TRIED)
            break;
        const int aligned = free_group(w, mode, start_us, &w->wider);
        const int64_t span = aligned ? quickest_us : span_us(w, mode, &w->wider);
        if (start_us + span < before_us) {
            int64_t sum_us = 0;
            before_us = start_us + span;
            for (int32_t g = 0; g < w->wider.size; g++) {
                const int64_t at = (int64_t)w->wider.node[g] * p->widest;
                for (int32_t k = 0; k < p->nodes[w->wider.node[g]].size; k++)
                    if (w->wider.mask[g] >> w->device[at + k] & 1)
                        sum_us += w->free_us[at + k];
            }
            w->wider.start_us = start_us;
            w->wider.span_us = span;
            w->wider.waste_us = mode->degree * start_us - sum_us;
            swap_offers(&w->wide, &w->wider);
            found = 1;
        }
        if (start_us + quickest_us >= before_us)
            break;
        start_us = next_start_us(w, mode, start_us, &known);
        if (start_us >= least_us)
            break;
    }
    return found;
}

const Offer *best_group(Walker *w, int64_t ready_us, const Mode *mode, int32_t site)
{
    int64_t before_us = NEVER_US;
    const Offer *found = NULL;
    if (site >= 0 && w->has_node[site] && w->problem->nodes[site].kind == mode->kind &&
        w->problem->nodes[site].size >= mode->degree) {
        at_node(w, site, ready_us, mode, &w->here);
        return &w->here;
    }
    if (on_node(w, ready_us, mode, &w->here)) {
        found = &w->here;
        before_us = w->here.start_us + mode->duration_us;
    }
    const int32_t count = w->first_of_kind[mode->kind + 1] - w->first_of_kind[mode->kind];
    if (mode->degree > 1 && count > 1 && ready_us + mode->quickest_us < before_us &&
        across(w, ready_us, mode, before_us))
        found = &w->wide;
    return found;
}
